"""An engine replica's metrics, from what it says of itself at a check-in."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from deployments.operators.report import ReplicaReport
from deployments.policy_status import PolicyStatus
from deployments.telemetry import catalogue
from deployments.telemetry.catalogue import Metric
from deployments.telemetry.samples import Labels, Samples, Value
from deployments.wire import EngineStatus
from dflash.stats import NO_DRAFTER, LoopSnapshot, WhyPlain


def engine_samples(model: str, statuses: Iterable[EngineStatus]) -> Samples:
    """Return the samples of all replicas that say something.

    A replica that starts anew has another name: its counters are other series, and none of them
    ever runs backwards.

    Args:
        model: The name that clients ask for.
        statuses: What each replica said last.
    """
    samples = _Collected()
    for status in statuses:
        samples.origin = (model, status.replica)
        if status.steps is not None:
            _add_steps(samples, status.steps)
        if status.policy is not None:
            _add_policy(samples, status.policy)
        if status.report is not None:
            _add_report(samples, status.report)
        for change, count in status.decisions:
            samples.add(catalogue.POLICY_DECISIONS, float(count), *change)
    return samples.values


@dataclass
class _Collected:
    """Samples of one replica after another."""

    origin: Labels = ("", "")
    values: dict[Metric, dict[Labels, Value]] = field(default_factory=dict)

    def add(self, metric: Metric, value: Value, *labels: str) -> None:
        self.values.setdefault(metric, {})[(*self.origin, *labels)] = value

    def add_all(self, values: Mapping[Metric, float]) -> None:
        for metric, value in values.items():
            self.add(metric, float(value))


def _add_steps(samples: _Collected, steps: LoopSnapshot) -> None:
    samples.add_all(
        {
            catalogue.NUM_PREEMPTIONS: steps.num_preemptions,
            catalogue.PREFIX_QUERIES: steps.num_prefill_tokens + steps.num_cached_tokens,
            catalogue.PREFIX_HITS: steps.num_cached_tokens,
            catalogue.PROMPT_TOKENS: steps.num_prefill_tokens,
            catalogue.GENERATION_TOKENS: steps.num_emitted_tokens,
            catalogue.NUM_RUNNING: steps.num_running,
            catalogue.NUM_WAITING: steps.num_waiting,
            # The newest step may be long ago.
            catalogue.NUM_DECODING: min(steps.num_decoding, steps.num_running),
            catalogue.KV_CACHE_USAGE: steps.num_pages_used / max(1, steps.num_pages_total),
        }
    )
    for reason in WhyPlain:
        samples.add(catalogue.SPEC_INACTIVE, float(steps.plain_rows.get(reason, 0)), reason.value)
    for mode, times in steps.step_times.items():
        samples.add(catalogue.STEP_TIME, times, mode)
    for drafter, did in steps.by_drafter.items():
        samples.add(catalogue.NUM_DRAFTS, float(did.num_drafting), drafter)
        samples.add(catalogue.NUM_DRAFT_TOKENS, float(did.num_draft_tokens), drafter)
        samples.add(catalogue.NUM_ACCEPTED_TOKENS, float(did.num_accepted_tokens), drafter)
        for position, count in enumerate(did.grades.verified_accepted):
            samples.add(catalogue.NUM_ACCEPTED_PER_POS, float(count), drafter, str(position))


def _add_policy(samples: _Collected, policy: PolicyStatus) -> None:
    drafter, _, length = policy.arm.partition(":")
    samples.add(catalogue.POLICY_DRAFT_LEN, float(length or 0))
    for mode in (NO_DRAFTER, *policy.break_even):
        samples.add(catalogue.POLICY_MODE, float(mode == drafter), mode)
    samples.add(catalogue.POLICY_PINNED, float(policy.pinned_by is not None))


def _add_report(samples: _Collected, report: ReplicaReport) -> None:
    if report.memory is not None:
        for component, num_bytes in report.memory.parts.items():
            samples.add(catalogue.DEVICE_MEMORY, float(num_bytes), component)
    if report.desk is None:
        return
    samples.add(catalogue.POLICY_DECISION_AGE, report.desk.since_s)
    if report.desk.expected_gain is not None:
        samples.add(catalogue.POLICY_EXPECTED_GAIN, report.desk.expected_gain)
    if report.desk.realised is not None:
        samples.add(catalogue.POLICY_REALISED_GAIN, report.desk.realised.gain)

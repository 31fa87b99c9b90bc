"""An engine's metrics: of what it says at a check-in, and of a real engine's steps."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.script_drafter import right_up_to
from deployments.operators.report import DeskReport, MemoryReport, ReplicaReport
from deployments.telemetry import catalogue
from deployments.telemetry.catalogue import ENGINE_METRICS, Metric
from deployments.telemetry.engine_samples import engine_samples
from deployments.telemetry.exposition import prometheus_text
from deployments.telemetry.samples import Labels, Samples, Value
from deployments.wire import EngineStatus
from dflash.config import EngineLimits
from dflash.durations import BucketCounts
from dflash.stats import EngineCounts, LoopSnapshot, WhyPlain
from policy.arms import PLAIN_ARM, Arm
from policy.decision import Realised
from tests.rigs.drafted import VOCAB, always, request

ORIGIN = ("m", "r1")
# What metrics read of a status, which has more for people.
POLICY = SimpleNamespace(arm="dflash2:7", break_even={"dflash2": 9, "mtp": 3}, pinned_by=None)
PLAIN_POLICY = SimpleNamespace(arm="plain", break_even={"dflash2": 9}, pinned_by="ana")
DESK = DeskReport(
    home="dflash2:7",
    since_s=12.5,
    newest=None,
    num_repeats=0,
    expected_gain=1.8,
    realised=Realised(Arm("dflash2", 7), PLAIN_ARM, 1.6),
    realised_age_s=3.0,
    acceptances=(),
    pin=None,
    floor_fraction=0.1,
    clock_offset_s=0.0,
)


def served() -> LoopSnapshot:
    """Return the sums of a real engine that has drafted, prefilled and decoded plainly."""
    drive = Drive(EngineLimits(4, 64), script=right_up_to(2, VOCAB), planner=always(4))
    drive.submit(request("a", max_tokens=14), request("b", tuple(range(1, 40)), max_tokens=9))
    drive.finish()
    snapshot = LoopSnapshot.of(drive.engine.counts)
    for result in drive.results:
        snapshot = snapshot.after_step(result.stats, result.fault)
    return snapshot


def status(steps: LoopSnapshot | None, **more: object) -> EngineStatus:
    limits = EngineLimits()
    bare = EngineStatus(True, "", 1, 0, 0, 0, 0, 9, 0, 0, limits, None, replica="r1", steps=steps)
    return replace(bare, **more)  # type: ignore[arg-type]


def of(samples: Samples, metric: Metric) -> Mapping[Labels, Value]:
    return {labels[2:]: value for labels, value in samples[metric].items()}


def test_counters_are_the_sums_of_the_engines_steps():
    steps = served()
    (did,) = steps.by_drafter.values()

    samples = engine_samples("m", [status(steps)])

    assert of(samples, catalogue.NUM_DRAFTS) == {("script",): did.num_drafting}
    assert of(samples, catalogue.NUM_DRAFT_TOKENS) == {("script",): did.num_draft_tokens}
    assert of(samples, catalogue.NUM_ACCEPTED_TOKENS) == {("script",): did.num_accepted_tokens}
    assert of(samples, catalogue.PROMPT_TOKENS) == {(): steps.num_prefill_tokens}
    assert of(samples, catalogue.GENERATION_TOKENS) == {(): 23}
    assert did.num_accepted_tokens > 0


def test_accepted_tokens_by_position_add_up_to_all_of_them():
    samples = engine_samples("m", [status(served())])

    by_position = of(samples, catalogue.NUM_ACCEPTED_PER_POS)
    total = of(samples, catalogue.NUM_ACCEPTED_TOKENS)[("script",)]
    assert [labels for labels, kept in by_position.items() if kept] == [
        ("script", "0"),
        ("script", "1"),
    ]
    assert sum(by_position.values()) == total  # type: ignore[arg-type]


def test_each_step_is_timed_once_under_its_mode():
    steps = served()

    times = of(engine_samples("m", [status(steps)]), catalogue.STEP_TIME)

    assert set(times) == {("prefill",), ("script",), ("plain",)}
    counts = [each for each in times.values() if isinstance(each, BucketCounts)]
    assert sum(each.count for each in counts) == steps.num_steps
    assert abs(sum(each.total for each in counts) - steps.busy_time_s) < 1e-9


def test_every_reason_has_a_series_from_the_start():
    reasons = of(engine_samples("m", [status(served())]), catalogue.SPEC_INACTIVE)

    assert set(reasons) == {(why.value,) for why in WhyPlain}
    assert reasons[("budget",)] == 1


def test_the_policy_and_the_memory_are_what_the_replica_reports():
    memory = MemoryReport({"weights": 5, "headroom": 7}, 12, 3)
    told = status(
        None,
        policy=POLICY,
        report=ReplicaReport(memory=memory, desk=DESK),
        decisions=((("plain", "dflash2", "faster"), 2),),
    )

    samples = engine_samples("m", [told])

    assert of(samples, catalogue.POLICY_MODE) == {("plain",): 0, ("dflash2",): 1, ("mtp",): 0}
    assert of(samples, catalogue.POLICY_DRAFT_LEN) == {(): 7}
    assert of(samples, catalogue.POLICY_PINNED) == {(): 0}
    assert of(samples, catalogue.POLICY_DECISIONS) == {("plain", "dflash2", "faster"): 2}
    assert of(samples, catalogue.POLICY_DECISION_AGE) == {(): 12.5}
    assert of(samples, catalogue.POLICY_EXPECTED_GAIN) == {(): 1.8}
    assert of(samples, catalogue.POLICY_REALISED_GAIN) == {(): 1.6}
    assert of(samples, catalogue.DEVICE_MEMORY) == {("weights",): 5, ("headroom",): 7}


def test_plain_decoding_is_a_mode_of_length_0():
    samples = engine_samples("m", [status(None, policy=PLAIN_POLICY)])

    assert of(samples, catalogue.POLICY_MODE)[("plain",)] == 1
    assert of(samples, catalogue.POLICY_DRAFT_LEN) == {(): 0}
    assert of(samples, catalogue.POLICY_PINNED) == {(): 1}


def test_replicas_are_series_of_their_own_so_none_runs_backwards():
    before = status(served())
    anew = replace(status(LoopSnapshot.of(EngineCounts(0, 0, 0, 0, 0, 9))), replica="r2")

    both = engine_samples("m", [before, anew])

    tokens = both[catalogue.GENERATION_TOKENS]
    assert tokens == {("m", "r1"): 23, ("m", "r2"): 0}


def test_a_replica_that_says_everything_leaves_no_metric_of_the_list_without_a_value():
    told = status(
        served(),
        policy=POLICY,
        report=ReplicaReport(memory=MemoryReport({"weights": 5}, 5, 3), desk=DESK),
        decisions=((("plain", "dflash2", "faster"), 2),),
    )

    samples = engine_samples("m", [told])

    assert set(samples) == set(ENGINE_METRICS)
    for metric, values in samples.items():
        for labels in values:
            assert len(labels) == len(metric.labels), metric.name
            assert labels[:2] == ORIGIN
    assert prometheus_text(samples).count(b"# TYPE ") >= len(ENGINE_METRICS)

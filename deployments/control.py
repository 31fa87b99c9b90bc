"""The policy as the engine's planner: what it sees, when it decides, and how it is obeyed."""

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from deployments.policy_status import PolicyStatus
from deployments.request_history import RequestHistory
from deployments.step_times import StepTimes
from dflash.plan import PLAIN, Arm, Decoding, DraftPlan, PlanSignals
from dflash.profile import SHORT_CONTEXT
from dflash.stats import DrafterStats, StepStats
from policy.arms import Arm as PolicyArm
from policy.break_even import break_even
from policy.controller import decide
from policy.decision import Decision, Plan, Residency, first_decision
from policy.limits import Limits
from policy.pins import Pin
from policy.readings import MemoryReading
from policy.signals import DrafterCondition, PoolSignal, Signals, StepSample
from policy.terms import Terms

# Steps between two decisions where nothing sudden happens.
_NUM_STEPS = 4
# So many more requests than at the last decision are looked at at once.
_JUMP_FACTOR = 1.5
_logger = logging.getLogger(__name__)

OnDecision = Callable[[Decision, Decision, Signals], None]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What changes from outside between two steps. Replaced whole, from any thread.

    Attributes:
        limits: The operator's bounds.
        reading: Device memory, as last read.
        pin: The pin in force; its end is on the planner's clock.
    """

    limits: Limits = field(default_factory=Limits)
    reading: MemoryReading = field(default_factory=MemoryReading)
    pin: Pin | None = None


class PolicyPlanner:
    """Decides every few steps how to speculate; between two decisions the plan stands.

    One thread calls `plan`; ``surroundings`` may be replaced from any other.

    Attributes:
        surroundings: What the next decision takes into account beside the steps.
        num_errors: Decisions that failed; the plan before them stayed.
        last_error: What the last of them raised; None where none did.
    """

    def __init__(
        self,
        times: StepTimes,
        surroundings: Surroundings | None = None,
        *,
        on_decision: OnDecision | None = None,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Start with plain decoding.

        Args:
            times: Drafters and step times.
            surroundings: As they are at first.
            on_decision: Told the decision before, the new one, and what it was made from.
            clock: Seconds that never go back.
            draw: Uniform numbers in [0, 1).

        Raises:
            PolicyError: Limits and drafters contradict each other.
        """
        self.surroundings = surroundings or Surroundings()
        self.num_errors = 0
        self.last_error: str | None = None
        self._times = times
        self._terms = Terms(times.ladder, times.costs, self.surroundings.limits)
        self._on_decision = on_decision
        self._clock, self._draw = clock, draw
        self._decision = first_decision(self._terms, clock())
        self._draft_plan = DraftPlan()
        self._requests = RequestHistory()
        self._steps: list[StepSample] = []
        self._last: StepStats | None = None
        self._num_context_tokens = self._num_rows = 0

    @property
    def decision(self) -> Decision:
        """The decision in force."""
        return self._decision

    def plan(self, signals: PlanSignals) -> DraftPlan:
        """Return the plan of this step."""
        if self._last is not None and signals.last is not self._last:
            plan = self._decision.plan
            self._steps.append(sample_of(signals.last, plan.arm, self._num_context_tokens))
        self._last = signals.last
        self._num_context_tokens = _mean_tokens(signals.decoding)
        self._requests.see(signals.decoding)
        if self._is_due(signals):
            self._decide_anew(signals)
        num_drafting = self._decision.plan.num_drafting
        if num_drafting is None:
            return self._draft_plan
        return _thinned(self._draft_plan, signals.decoding[num_drafting:])

    def status(self) -> PolicyStatus:
        """Return what is in force; may be called from any thread."""
        decision, terms, surroundings = self._decision, self._terms, self.surroundings
        now_s, pin = self._clock(), surroundings.pin
        state = decision.state
        return PolicyStatus(
            arm=decision.plan.arm.name,
            reason=str(decision.reason),
            break_even=break_even(state, terms, self._num_context_tokens or SHORT_CONTEXT, now_s),
            max_concurrency=dict(surroundings.limits.max_concurrency),
            memory=str(state.governor.level),
            drifts=state.corrections.drifts(),
            pinned_by=pin.author if pin is not None and now_s < pin.expires_s else None,
            num_errors=self.num_errors,
            last_error=self.last_error,
        )

    def _is_due(self, signals: PlanSignals) -> bool:
        """Return whether to decide: after a few steps, or at once where something happened."""
        has_jumped = len(signals.decoding) > _JUMP_FACTOR * self._num_rows + _NUM_STEPS
        was_preempted = bool(self._steps) and self._steps[-1].num_preempted > 0
        return len(self._steps) >= _NUM_STEPS or has_jumped or was_preempted

    def _decide_anew(self, signals: PlanSignals) -> None:
        """Decide; where that fails, the plan before stays."""
        seen = self._signals(signals)
        self._steps, self._num_rows = [], len(signals.decoding)
        try:
            if self.surroundings.limits is not self._terms.limits:
                # What was learnt is in the decision, and stays.
                self._terms = replace(self._terms, limits=self.surroundings.limits)
            decision = decide(self._decision, seen, self._terms)
            if self._on_decision is not None:
                self._on_decision(self._decision, decision, seen)
        except Exception as error:
            self.num_errors += 1
            self.last_error = f"{type(error).__name__}: {error}"
            if self.num_errors == 1:
                _logger.error(
                    "a decision failed; the plan before it stays, and later failures are only "
                    "counted",
                    exc_info=error,
                )
            return
        self._decision, self._draft_plan = decision, draft_plan(decision.plan)

    def _signals(self, signals: PlanSignals) -> Signals:
        counts, rows = signals.counts, len(signals.decoding)
        surroundings = self.surroundings
        now_s = self._clock()
        pin = surroundings.pin
        steps = tuple(self._steps)
        num_prefill = sum(step.num_other_tokens for step in steps) // max(1, len(steps))
        return Signals(
            now_s=now_s,
            draw=self._draw(),
            num_decoding=rows,
            num_waiting=counts.num_waiting,
            num_admissible=max(0, signals.max_num_seqs - counts.num_running),
            num_prefill_tokens=num_prefill,
            num_context_tokens=self._num_context_tokens,
            steps=steps,
            requests=self._requests.signals(signals.decoding),
            drafters={
                name: DrafterCondition(
                    catch_up_s=num_behind * self._times.costs.prefill_s,
                    sync_s=self._times.sync_s(name, max(1, rows), self._num_context_tokens),
                )
                for name, num_behind in signals.num_behind.items()
            },
            pool=PoolSignal(counts.num_pages_total, counts.num_pages_used, signals.page_size),
            reading=surroundings.reading,
            pin=pin if pin is not None and now_s < pin.expires_s else None,
        )


def sample_of(stats: StepStats, arm: PolicyArm, num_context_tokens: int) -> StepSample:
    """Return a step as the policy sees it.

    Args:
        stats: Its counts.
        arm: What its plan asked for.
        num_context_tokens: Mean tokens of the requests that decoded.
    """
    did = stats.by_drafter.get(arm.drafter, _DID_NOTHING)
    grades = did.grades
    return StepSample(
        arm=arm,
        num_decoding=stats.num_decoding,
        num_draft_tokens=did.num_draft_tokens,
        num_context_tokens=num_context_tokens,
        num_other_tokens=stats.num_prefill_tokens + stats.num_catch_up_tokens,
        num_emitted_tokens=stats.num_emitted_tokens,
        num_preempted=stats.num_preempted,
        step_time_s=stats.step_time_s,
        graded=_sums(grades.verified_graded, grades.free_graded),
        accepted=_sums(grades.verified_accepted, grades.free_accepted),
        has_drafter_fault=did.num_faults > 0,
    )


def draft_plan(plan: Plan) -> DraftPlan:
    """Return a plan of the policy as the engine takes it."""
    drafter = plan.arm.drafter
    warm = {name for name, kept in plan.residency.items() if kept is Residency.WARM}
    if not plan.arm.is_plain:
        warm.add(drafter)
    return DraftPlan(
        arm=_engine_arm(drafter, plan.arm.draft_length),
        by_request={
            request_id: _engine_arm(drafter, length)
            for request_id, length in plan.by_request.items()
        },
        warm=frozenset(warm),
        num_graded=plan.num_graded,
    )


def _engine_arm(drafter: str, draft_length: int) -> Arm:
    return Arm(drafter, draft_length) if draft_length else PLAIN


def _thinned(plan: DraftPlan, others: Sequence[Decoding]) -> DraftPlan:
    """Return a plan in which these requests decode plainly."""
    plainly = dict.fromkeys((request.request_id for request in others), PLAIN)
    return replace(plan, by_request={**plan.by_request, **plainly})


def _mean_tokens(decoding: Sequence[Decoding]) -> int:
    return sum(request.num_tokens for request in decoding) // max(1, len(decoding))


def _sums(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip_longest(first, second, fillvalue=0))


_DID_NOTHING = DrafterStats()

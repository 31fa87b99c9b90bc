"""The policy as the engine's planner: when it decides, how it is obeyed, what it survives."""

import logging
from collections.abc import Callable
from dataclasses import replace

from deployments.decision_record import Made
from deployments.engine_plan import draft_plan, thinned
from deployments.observation import Observation, Sources, Surroundings
from deployments.policy_status import PolicyStatus
from deployments.step_times import StepTimes
from dflash.plan import DraftPlan, PlanSignals
from dflash.profile import SHORT_CONTEXT
from policy.break_even import break_even, unmeasured
from policy.controller import decide
from policy.decision import Decision, first_decision
from policy.pins import pin_in_force
from policy.reasons import Reason
from policy.terms import Terms

_logger = logging.getLogger(__name__)


class PolicyPlanner:
    """Decides several times a second how to speculate; between two decisions the plan stands.

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
        sources: Sources | None = None,
        on_decision: Callable[[Made], object] | None = None,
    ) -> None:
        """Start with plain decoding.

        Args:
            times: Drafters and step times.
            surroundings: As they are at first.
            sources: Whom to ask beside the engine.
            on_decision: Told of each decision and what it was made from, between two steps.

        Raises:
            PolicyError: Limits and drafters contradict each other.
        """
        self.surroundings = surroundings or Surroundings()
        self.num_errors = 0
        self.last_error: str | None = None
        self._terms = Terms(times.ladder, times.costs, self.surroundings.limits)
        self._on_decision = on_decision
        self._sources = sources or Sources()
        self._observation = Observation(times, self._sources)
        self._decision = first_decision(self._terms, self._sources.clock())
        self._draft_plan = DraftPlan()
        self._heeded = self.surroundings

    @property
    def decision(self) -> Decision:
        """The decision in force."""
        return self._decision

    def plan(self, signals: PlanSignals) -> DraftPlan:
        """Return the plan of this step."""
        decision = self._decision
        is_steady = decision.reason is Reason.STEADY and self.surroundings is self._heeded
        if self._observation.see(signals, decision.plan.arm, is_steady=is_steady):
            self._decide_anew(signals)
        num_drafting = self._decision.plan.num_drafting
        if num_drafting is None:
            return self._draft_plan
        return thinned(self._draft_plan, signals.decoding, num_drafting)

    def status(self) -> PolicyStatus:
        """Return what is in force; may be called from any thread."""
        decision, terms, surroundings = self._decision, self._terms, self.surroundings
        now_s = self._sources.clock()
        pin = pin_in_force(surroundings.pins, self._sources.replica, now_s)
        reading = self._sources.reading()
        before = decision.plan.taking_over
        state, num_tokens = decision.state, self._observation.num_context_tokens
        return PolicyStatus(
            arm=decision.plan.arm.name,
            taking_over=before and before.name,
            reason=str(decision.reason),
            break_even=break_even(state, terms, num_tokens or SHORT_CONTEXT, now_s),
            unmeasured=unmeasured(state, terms),
            max_concurrency=dict(surroundings.limits.max_concurrency),
            memory=str(state.governor.level),
            release=state.governor.release.name.lower(),
            memory_trouble=reading.trouble and str(reading.trouble),
            is_throttled=reading.is_throttled,
            drifts=state.corrections.drifts(),
            pinned_by=pin and pin.author,
            num_errors=self.num_errors,
            last_error=self.last_error,
        )

    def _decide_anew(self, signals: PlanSignals) -> None:
        """Decide; where that fails, the plan before stays."""
        surroundings, last = self.surroundings, self._decision
        self._heeded = surroundings
        try:
            seen = self._observation.look(signals, surroundings.pins, last.state.governor.release)
            if surroundings.limits is not self._terms.limits:
                # What was learnt is in the decision, and stays.
                self._terms = replace(self._terms, limits=surroundings.limits)
            decision = decide(last, seen, self._terms)
            if self._on_decision is not None:
                self._on_decision(Made(last, seen, self._terms, decision))
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

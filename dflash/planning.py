"""The planner in a step: its plans checked, its faults outlived."""

import logging
from dataclasses import dataclass

from dflash.errors import PlanError
from dflash.plan import DraftPlan, Planner, PlanSignals

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of a step.

    Attributes:
        plan: What is in force; where there was a fault the one before it.
        fault: What the planner raised, or why its plan was refused; None where it holds.
    """

    plan: DraftPlan
    fault: str | None = None


class Planning:
    """A planner as the engine sees it: whatever it says, the step is computed.

    Attributes:
        planner: Asked before each step.
    """

    def __init__(self, planner: Planner, drafters: frozenset[str]) -> None:
        self.planner = planner
        self._drafters = drafters
        self._safe = DraftPlan()
        self._logged: set[str] = set()

    def hand_over(self, planner: Planner) -> None:
        """Ask another planner from the next step on; it does not answer for what was before it."""
        self.planner, self._safe = planner, DraftPlan()

    def plan(self, signals: PlanSignals) -> Planned:
        """Return the planner's plan, or its last one that could be carried out, plain if none."""
        try:
            plan = self.planner.plan(signals)
            self._check(plan)
        except Exception as error:
            kind = type(error).__name__
            if kind not in self._logged:
                self._logged.add(kind)
                _logger.error(
                    "a plan was refused; the one before it stays, and later faults of this kind "
                    "are only counted",
                    exc_info=error,
                )
            return Planned(self._safe, f"{kind}: {error}")
        self._safe = plan
        return Planned(plan)

    def _check(self, plan: DraftPlan) -> None:
        """Refuse what a step could not carry out; what a plan drafts with is among its warm."""
        counts = {"num_graded": plan.num_graded, "draft_length": plan.arm.draft_length}
        for request_id, arm in plan.by_request.items():
            counts[f"draft_length of {request_id}"] = arm.draft_length
        for name, count in counts.items():
            if not isinstance(count, int) or count < 0:
                raise PlanError(f"a plan's {name} is {count!r}; give a whole number, 0 or more")
        unknown = sorted((plan.warm | set(plan.released)) - self._drafters)
        if unknown:
            raise PlanError(
                f"a plan names drafter {unknown[0]!r}; this engine has "
                f"{', '.join(sorted(self._drafters)) or 'none'}"
            )

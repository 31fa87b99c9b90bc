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
        plan: What is in force; plain decoding where there was a fault.
        fault: What the planner raised, or why its plan was refused; None where it holds.
    """

    plan: DraftPlan
    fault: str | None = None


class Planning:
    """A planner as the engine sees it: whatever it says, the step is computed.

    Attributes:
        planner: Asked before each step; may be replaced between two.
    """

    def __init__(self, planner: Planner, drafters: frozenset[str]) -> None:
        self.planner = planner
        self._drafters = drafters
        self._logged: set[str] = set()

    def plan(self, signals: PlanSignals) -> Planned:
        """Return the planner's plan, or a plain one where it cannot be carried out."""
        try:
            plan = self.planner.plan(signals)
            self._check(plan)
        except Exception as error:
            kind = type(error).__name__
            if kind not in self._logged:
                self._logged.add(kind)
                _logger.error(
                    "a plan was refused; the step decodes plainly, and later faults of this kind "
                    "are only counted",
                    exc_info=error,
                )
            return Planned(DraftPlan(), f"{kind}: {error}")
        return Planned(plan)

    def _check(self, plan: DraftPlan) -> None:
        """Refuse a plan for drafters that are not here; what it drafts with is among the warm."""
        unknown = sorted((plan.warm | set(plan.released)) - self._drafters)
        if unknown:
            raise PlanError(
                f"a plan names drafter {unknown[0]!r}; this engine has "
                f"{', '.join(sorted(self._drafters)) or 'none'}"
            )

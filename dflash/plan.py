"""What to speculate in one step, and who says so: the seam between engine and policy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

from dflash.stats import EngineCounts, StepStats


class ContextMode(StrEnum):
    """Whether the drafter's context follows the committed tokens.

    ``warm``: it is extended in every step, and a sequence whose context is behind is caught up
    first. ``cold``: it is left alone, which costs nothing; drafting is not possible.
    """

    WARM = "warm"
    COLD = "cold"


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """What one step may speculate. Bounds of the engine apply on top.

    Attributes:
        draft_length: Most draft tokens verified for each sequence that decodes; 0 drafts nothing
            and reserves no pages.
        by_request: Draft lengths of single requests, by request id, in place of ``draft_length``.
        context: What happens to the drafter's context; ``warm`` wherever a length is over 0.
        num_graded: Most sequences whose whole block is drafted, so that the tokens beyond the
            verified ones can be graded against what is emitted later.
    """

    draft_length: int = 0
    by_request: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    context: ContextMode = ContextMode.COLD
    num_graded: int = 0

    def __post_init__(self) -> None:
        lengths = (self.draft_length, *self.by_request.values())
        if min(lengths) < 0:
            raise ValueError(f"draft lengths must be 0 or more, got {min(lengths)}")
        if max(lengths) > 0 and self.context is ContextMode.COLD:
            raise ValueError("a plan that drafts needs context 'warm', got 'cold'")

    def length_for(self, request_id: str) -> int:
        """Return the most draft tokens to verify for a request."""
        return self.by_request.get(request_id, self.draft_length)


def constant_plan(draft_length: int) -> DraftPlan:
    """Return the plan that an engine of a constant draft length is served with; 0 is plain."""
    context = ContextMode.WARM if draft_length else ContextMode.COLD
    # One block a step is drafted to its end, so that acceptance is known beyond the length.
    return DraftPlan(draft_length, context=context, num_graded=min(draft_length, 1))


@dataclass(frozen=True, slots=True)
class PlanSignals:
    """What a planner sees before a step.

    Attributes:
        counts: What the engine holds.
        decoding: Ids of the requests that decode in this step, in the order of their rows.
        last: The step before.
    """

    counts: EngineCounts
    decoding: tuple[str, ...]
    last: StepStats


class Planner(Protocol):
    """Decides before every step how far to speculate. No decision can change an id."""

    def plan(self, signals: PlanSignals) -> DraftPlan:
        """Return the plan of this step."""
        ...


@dataclass(frozen=True, slots=True)
class FixedPlanner:
    """The same plan for every step."""

    fixed: DraftPlan = field(default_factory=DraftPlan)

    def plan(self, signals: PlanSignals) -> DraftPlan:
        """Return the plan it was made with."""
        return self.fixed

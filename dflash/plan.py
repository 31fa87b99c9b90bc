"""What to speculate in one step, and who says so: the seam between engine and policy."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Protocol

from dflash.stats import NO_DRAFTER, EngineCounts, StepStats


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to decode a request in one step.

    Attributes:
        drafter: Name of the drafter that proposes; ``plain`` where nobody does.
        draft_length: Most draft tokens verified; 0 drafts nothing and reserves no pages.
    """

    drafter: str = NO_DRAFTER
    draft_length: int = 0

    def __post_init__(self) -> None:
        if self.draft_length < 0:
            raise ValueError(f"draft lengths must be 0 or more, got {self.draft_length}")
        if (self.drafter == NO_DRAFTER) != (self.draft_length == 0):
            raise ValueError(
                f"an arm of drafter {self.drafter!r} has draft length {self.draft_length}; "
                f"{NO_DRAFTER!r} goes with 0, a drafter with 1 or more"
            )


PLAIN: Final = Arm()


class Release(StrEnum):
    """What memory of a drafter is given back: that of its context, or all of it."""

    CONTEXT = "context"
    WEIGHTS = "weights"


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """What one step may speculate. Bounds of the engine apply on top.

    Attributes:
        arm: How each sequence that decodes does so.
        by_request: Arms of single requests, by request id, in place of ``arm``.
        warm: Names of the drafters whose context follows the committed tokens in this step: it is
            extended, and a sequence that it lacks tokens of is caught up. The others are cold:
            left alone, which costs nothing, and unable to draft.
        followed: Requests that a warm drafter catches up with; None is all. For a trial with a few
            the contexts of all others need not be computed.
        taking_over: What the drafter of ``arm`` takes over from, request by request: it begins with
            those that have a prompt to compute, and nobody who decodes is caught up with it.
            Those that it does not follow go on with this arm, whose drafter begins with nobody. So
            a change costs no computing, only time. None where all change at once.
        num_graded: Most sequences for which a drafter fills its whole block, where that is what it
            computes anyway, so that the tokens beyond the verified ones can be graded against
            what is emitted later.
        released: What memory is given back, by drafter; none of them is warm. Those left out have
            all of theirs, and get it again where it was given back.
    """

    arm: Arm = PLAIN
    by_request: Mapping[str, Arm] = field(default_factory=lambda: MappingProxyType({}))
    warm: frozenset[str] = frozenset()
    # Two counts or sets in each other's place would be a plan that nobody meant.
    _: KW_ONLY
    followed: frozenset[str] | None = None
    taking_over: Arm | None = None
    num_graded: int = 0
    released: Mapping[str, Release] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        arms = (self.arm, *self.by_request.values(), self.taking_over or PLAIN)
        cold = {arm.drafter for arm in arms} - self.warm - {NO_DRAFTER}
        if cold:
            raise ValueError(
                f"a plan drafts with {_listed(cold)} and keeps {_listed(self.warm)} warm; "
                f"add {_listed(cold)} to warm"
            )
        if gone := self.warm & set(self.released):
            raise ValueError(f"a plan keeps {_listed(gone)} warm and releases it; do one of both")

    @property
    def leaving(self) -> str | None:
        """The drafter that begins with nobody any more; None where there is none."""
        return None if self.taking_over is None else self.taking_over.drafter

    def catches_up(self, drafter: str, request_id: str, *, is_decoding: bool) -> bool:
        """Return whether a warm drafter is caught up with a request that it lacks tokens of."""
        # Also while a trial of plain decoding runs: the drafter that takes over is warm then.
        if self.taking_over is not None and (is_decoding or drafter == self.leaving):
            return False
        return self.followed is None or request_id in self.followed

    def arm_for(self, request_id: str) -> Arm:
        """Return how a request decodes."""
        return self.by_request.get(request_id, self.arm)


def constant_plan(arm: Arm) -> DraftPlan:
    """Return the plan that an engine is served with whose arm is always the same."""
    if arm == PLAIN:
        return DraftPlan()
    # One block a step is drafted to its end, so that acceptance is known beyond the length.
    return DraftPlan(arm, warm=frozenset({arm.drafter}), num_graded=1)


@dataclass(frozen=True, slots=True)
class Decoding:
    """A request that decodes in this step.

    Attributes:
        request_id: Its id.
        num_tokens: Tokens it holds, prompt and output.
        max_draft_length: Most draft tokens it wants verified; None where it does not say.
        num_drafted: Draft tokens of it that were verified so far.
        num_accepted: Of those, the ones that were right.
    """

    request_id: str
    num_tokens: int = 1
    max_draft_length: int | None = None
    num_drafted: int = 0
    num_accepted: int = 0


@dataclass(frozen=True, slots=True)
class PlanSignals:
    """What a planner sees before a step.

    Attributes:
        counts: What the engine holds.
        decoding: The requests that decode in this step, in the order of their rows.
        last: The step before.
        num_behind: Computed tokens that each drafter's context lacks, over all requests.
        max_num_seqs: Most requests that may run at once.
        page_size: Tokens of a page.
        absent: Drafters whose weights were to come back and could not be loaded.
    """

    counts: EngineCounts
    decoding: tuple[Decoding, ...]
    last: StepStats
    num_behind: Mapping[str, int] = field(default_factory=dict)
    max_num_seqs: int = 1
    page_size: int = 16
    absent: frozenset[str] = frozenset()


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


def _listed(names: set[str] | frozenset[str]) -> str:
    return ", ".join(map(repr, sorted(names))) or "none"

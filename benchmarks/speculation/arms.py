"""The arms of the throughput grid: plain twice, so that one can see what a difference is worth."""

from dataclasses import dataclass

from benchmarks.rigs.planners import Reach
from dflash.plan import NO_DRAFTER, DraftPlan, constant_plan
from dflash.plan import Arm as PlanArm

PLAIN = "plain"
PLAIN_AGAIN = "plain again"
_LENGTHS = (1, 3, 5, 7)


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to serve.

    Attributes:
        name: What samples call it.
        drafter: Who drafts; ``plain`` where nobody does.
        draft_length: Drafts verified per sequence and step; 0 is plain decoding.
    """

    name: str
    drafter: str = NO_DRAFTER
    draft_length: int = 0

    @property
    def plan(self) -> DraftPlan:
        """The plan of every step, as an engine of this drafter and length is served."""
        return constant_plan(PlanArm(self.drafter, self.draft_length))


def drafting_arm(drafter: str, draft_length: int) -> Arm:
    """Return an arm under the name that policies give it."""
    return Arm(f"{drafter}:{draft_length}", drafter, draft_length)


def grid_arms(reach: Reach) -> tuple[Arm, ...]:
    """Return plain, each drafter at several lengths up to its most, and plain again."""
    drafting = (
        drafting_arm(name, length) for name, most in reach.items() for length in _lengths(most)
    )
    return (Arm(PLAIN), *drafting, Arm(PLAIN_AGAIN))


def _lengths(most: int) -> list[int]:
    """Return every length of a short chain, and some of a block."""
    return [length for length in range(1, most + 1) if length in _LENGTHS or most < _LENGTHS[2]]


def in_turn(arms: tuple[Arm, ...], round_index: int) -> tuple[Arm, ...]:
    """Return the arms in the order of a round: every second one backwards.

    A machine that drifts through the run then favours no arm.
    """
    return arms if round_index % 2 == 0 else arms[::-1]

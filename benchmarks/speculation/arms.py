"""The arms of the throughput grid: plain twice, so that one can see what a difference is worth."""

from dataclasses import dataclass

from dflash.plan import DraftPlan, constant_plan

PLAIN = "plain"
PLAIN_AGAIN = "plain again"
DRAFT_LENGTHS = (1, 3, 5, 7)


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to serve.

    Attributes:
        name: What samples call it.
        draft_length: Drafts verified per sequence and step; 0 is plain decoding.
    """

    name: str
    draft_length: int

    @property
    def plan(self) -> DraftPlan:
        """The plan of every step, as an engine of this draft length is served."""
        return constant_plan(self.draft_length)


def grid_arms(most: int) -> tuple[Arm, ...]:
    """Return plain, every draft length up to the drafter's most, and plain again."""
    lengths = [length for length in DRAFT_LENGTHS if length <= most]
    return (
        Arm(PLAIN, 0),
        *(Arm(f"{length} drafts", length) for length in lengths),
        Arm(PLAIN_AGAIN, 0),
    )


def in_turn(arms: tuple[Arm, ...], round_index: int) -> tuple[Arm, ...]:
    """Return the arms in the order of a round: every second one backwards.

    A machine that drifts through the run then favours no arm.
    """
    return arms if round_index % 2 == 0 else arms[::-1]

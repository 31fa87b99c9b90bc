"""What one step computes, and what that came to: the values between schedule and commit."""

from dataclasses import dataclass

from dflash.batch import Run
from dflash.sampling import Chosen
from dflash.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Turn:
    """One sequence's part of a step."""

    sequence: Sequence
    run: Run


@dataclass(frozen=True, slots=True)
class Schedule:
    """What one step computes: the only artefact of scheduling.

    Attributes:
        turns: One a sequence, in the order of their rows.
        num_preempted: Sequences that lost their pages to older ones.
        num_cached_tokens: Tokens that need no computing because the prefix cache has them.
    """

    turns: tuple[Turn, ...]
    num_preempted: int
    num_cached_tokens: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a turn came to.

    Attributes:
        turn: The turn.
        chosen: Tokens the target chose; none where the run does not reach the sequence's end.
        error: Why the request cannot go on, where it cannot.
    """

    turn: Turn
    chosen: tuple[Chosen, ...] = ()
    error: str | None = None

"""Draft tokens against what the target chose, also those that nobody verified.

What is emitted does not depend on drafts. So a draft token beyond the verified ones can be graded
when its place is reached, as long as all before it were emitted as drafted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dflash.schedule import Turn, Verdict
from dflash.sequence import Tail
from dflash.stats import Grades

NUM_UNGRADED: Final = 2
"""Blocks not graded after a context was caught up: they are no sample of ordinary drafting."""


@dataclass(slots=True)
class _Tally:
    """Graded and accepted draft tokens, by place."""

    graded: list[int]
    accepted: list[int]

    def follow(self, tail: Tail, token_ids: Sequence[int]) -> Tail | None:
        """Grade a tail by what came; return what of it is still open, None where nothing is."""
        for place, (draft, token_id) in enumerate(
            zip(tail.token_ids, token_ids, strict=False), start=tail.place
        ):
            self.graded[place] += 1
            if draft != token_id:
                return None
            self.accepted[place] += 1
        rest = tail.token_ids[len(token_ids) :]
        return Tail(rest, tail.place + len(token_ids)) if rest else None


def grade(verdicts: Iterable[Verdict], num_places: int) -> Grades:
    """Grade a step's draft tokens and the open tails of its sequences.

    Tails stay open only while each step confirms another token of them, so a sequence has fewer
    of them than ``num_places``.

    Args:
        verdicts: Before they are committed.
        num_places: Most draft tokens of one pass.
    """
    verified, free = (_Tally([0] * num_places, [0] * num_places) for _ in range(2))
    for verdict in verdicts:
        sequence = verdict.turn.sequence
        chosen = [choice.token_id for choice in verdict.chosen]
        if chosen and sequence.tails:
            followed = (free.follow(tail, chosen) for tail in sequence.tails)
            sequence.tails = [tail for tail in followed if tail is not None]
        if chosen and verdict.turn.num_drafts:
            _grade_block(verdict.turn, chosen, verified, free)
    return Grades(
        tuple(verified.graded), tuple(verified.accepted), tuple(free.graded), tuple(free.accepted)
    )


def _grade_block(turn: Turn, chosen: Sequence[int], verified: _Tally, free: _Tally) -> None:
    sequence, num_drafts = turn.sequence, turn.num_drafts
    if sequence.num_ungraded:
        sequence.num_ungraded -= 1
        return
    verified.follow(Tail(turn.drafts, 0), chosen)
    if len(chosen) > num_drafts and turn.tail:
        tail = free.follow(Tail(turn.tail, num_drafts), chosen[num_drafts:])
        if tail is not None:
            sequence.tails.append(tail)

"""Draft tokens against what the target chose, also those that nobody verified.

What is emitted does not depend on drafts. So a draft token beyond the verified ones can be graded
when its place is reached, as long as all before it were emitted as drafted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dflash.following import Following, Tail
from dflash.schedule import Turn, Verdict
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


@dataclass(frozen=True, slots=True)
class _Tallies:
    """Those of one drafter: of verified draft tokens, and of those beyond them."""

    verified: _Tally
    free: _Tally

    @classmethod
    def of(cls, num_places: int) -> "_Tallies":
        return cls(*(_Tally([0] * num_places, [0] * num_places) for _ in range(2)))

    @property
    def grades(self) -> Grades:
        tallies = (self.verified, self.free)
        return Grades(*(tuple(row) for each in tallies for row in (each.graded, each.accepted)))

    def follow_tails(self, following: Following, chosen: Sequence[int]) -> None:
        followed = (self.free.follow(tail, chosen) for tail in following.tails)
        following.tails = [tail for tail in followed if tail is not None]

    def grade_block(self, turn: Turn, following: Following, chosen: Sequence[int]) -> None:
        if following.num_ungraded:
            following.num_ungraded -= 1
            return
        self.verified.follow(Tail(turn.drafts, 0), chosen)
        if len(chosen) > turn.num_drafts and turn.tail:
            rest = Tail(turn.tail, turn.num_drafts)
            tail = self.free.follow(rest, chosen[turn.num_drafts :])
            if tail is not None:
                following.tails.append(tail)


def grade(verdicts: Iterable[Verdict], num_places: Mapping[str, int]) -> dict[str, Grades]:
    """Grade a step's draft tokens and the open tails of its sequences, by drafter.

    Tails stay open only while each step confirms another token of them, so a sequence has fewer
    of them than a draft has places.

    Args:
        verdicts: Before they are committed.
        num_places: Most draft tokens of one pass, by drafter.
    """
    tallies = {name: _Tallies.of(count) for name, count in num_places.items()}
    for verdict in verdicts:
        turn, chosen = verdict.turn, [choice.token_id for choice in verdict.chosen]
        if not chosen:
            continue
        for name, following in turn.sequence.followed_by.items():
            tallies[name].follow_tails(following, chosen)
        if turn.num_drafts or turn.tail:
            following = turn.sequence.followed_by[turn.drafter]
            tallies[turn.drafter].grade_block(turn, following, chosen)
    return {name: each.grades for name, each in tallies.items()}

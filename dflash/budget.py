"""The tokens of one step, shared among sequences that decode, their drafts and prompts."""

from collections.abc import Iterable
from dataclasses import dataclass

from dflash.plan import NO_DRAFTER
from dflash.sequence import Sequence


@dataclass(slots=True)
class Share:
    """One sequence's part of a step's tokens.

    Attributes:
        sequence: Whose.
        num_needed: Tokens to compute before its next one can be chosen, and for the drafters'
            contexts to catch up.
        drafter: Who drafts for it.
        num_wanted: Draft tokens it could have verified.
        num_tokens: Tokens given.
        num_drafts: Draft tokens given.
    """

    sequence: Sequence
    num_needed: int
    drafter: str = NO_DRAFTER
    num_wanted: int = 0
    num_tokens: int = 0
    num_drafts: int = 0

    @property
    def num_missing(self) -> int:
        """Tokens it needs beyond those given."""
        return self.num_needed - self.num_tokens


def share_out(budget: int, shares: list[Share]) -> None:
    """Give a step's tokens out.

    Sequences with one token to compute come first, the longest unserved leading where the budget
    is under their number. Drafts have what is left but for half of it, where prompts can use
    that. Half of the rest goes to the oldest prompts, so that a long one always moves on; the
    other half to those nearest to their first token, so that a short one does not wait for a long
    one.
    """
    single = [share for share in shares if share.sequence.num_pending == 1]
    single.sort(key=lambda share: share.sequence.last_turn)
    for share in single[:budget]:
        share.num_tokens = 1
    budget -= min(budget, len(single))
    longer = [share for share in shares if share.num_missing and share.num_needed > 1]
    num_reserved = min(sum(share.num_missing for share in longer), budget - budget // 2)
    budget -= _deal_drafts(budget - num_reserved, shares)
    _deal(budget - budget // 2, longer)
    longer.sort(key=lambda share: share.num_missing)
    _deal(budget // 2, longer)


def _deal_drafts(num_tokens: int, shares: Iterable[Share]) -> int:
    """Give draft tokens out one a round and sequence; return how many were taken.

    A sequence's first draft token is likelier to stay than another's second.
    """
    num_left = num_tokens
    asking = [share for share in shares if share.num_tokens and share.num_wanted]
    while num_left and asking:
        for share in asking[:num_left]:
            share.num_drafts += 1
        num_left -= min(num_left, len(asking))
        asking = [share for share in asking if share.num_drafts < share.num_wanted]
    return num_tokens - num_left


def _deal(num_tokens: int, shares: Iterable[Share]) -> None:
    """Give these tokens out, each in turn taking all that it still needs."""
    for share in shares:
        more = min(num_tokens, share.num_missing)
        share.num_tokens += more
        num_tokens -= more

"""One drafter as scheduling sees it: what it may draft, and how far its context reaches."""

from dflash.drafters.base import DrafterFacts
from dflash.drafters.context import ContextBook
from dflash.grading import NUM_UNGRADED
from dflash.kv_cache import KVCache, PageTable
from dflash.schedule import Turn
from dflash.sequence import Sequence
from dflash.stats import WhyPlain


class Rung:
    """A drafter of the ladder.

    Attributes:
        facts: The drafter's.
        context: The book of its context.
    """

    def __init__(self, facts: DrafterFacts, kv_cache: KVCache) -> None:
        self.facts = facts
        self.context = ContextBook(kv_cache.num_pages, kv_cache.page_size)

    def is_followed(self, sequence: Sequence) -> bool:
        """Whether the context holds, or is to hold, all its computed tokens."""
        return sequence.num_tokens - 1 <= self.facts.max_context

    def num_context(self, sequence: Sequence, table: PageTable, known: int = 0) -> int:
        """Return how many computed tokens of a sequence have context in its pages.

        Args:
            sequence: Whose.
            table: Its pages.
            known: So many are known to have it.
        """
        most = min(sequence.num_computed, self.facts.max_context)
        return self.context.length(table.pages, most, min(known, most))

    def num_behind(self, sequence: Sequence, table: PageTable) -> int:
        """Return how many computed tokens the target has to compute again for the context.

        0 where the sequence is longer than the drafter was trained for: it drafts no more. And
        where the drafter failed to take its context: it goes on without for a while.
        """
        following = sequence.followed_by[self.facts.name]
        if following.num_context < sequence.num_computed:
            # Its pages may have been replaced by others', and those have caught up, since.
            following.num_context = self.num_context(sequence, table, following.num_context)
        if not self.is_followed(sequence) or sequence.num_tokens < following.catch_up_at:
            return 0
        return sequence.num_computed - following.num_context

    def wanted(self, sequence: Sequence, draft_length: int) -> int | WhyPlain:
        """Return the draft tokens for a sequence that decodes, or why there will be none."""
        if not self.is_followed(sequence):
            return WhyPlain.CONTEXT_TOO_LONG
        if sequence.followed_by[self.facts.name].num_context < sequence.num_computed:
            return WhyPlain.CATCHING_UP
        # A verify run emits one token more than it keeps of the draft. The request's own budget
        # also ends it within the model's positions: it would not have been admitted otherwise.
        most = min(draft_length, self.facts.max_draft_length, sequence.num_left - 1)
        return most or WhyPlain.BUDGET

    def committed(self, turn: Turn, table: PageTable) -> None:
        """Enter how far the context of a turn's sequence reaches, now that it is committed."""
        sequence = turn.sequence
        following = sequence.followed_by[self.facts.name]
        was_behind = following.num_context < turn.run.start + turn.num_catch_up
        following.num_context = self.num_context(sequence, table, following.num_context)
        if turn.num_catch_up and was_behind and following.num_context == sequence.num_computed:
            following.num_ungraded = NUM_UNGRADED

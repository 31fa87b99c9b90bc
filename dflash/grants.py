"""How many draft tokens each sequence may have, by everything that bounds them but the budget."""

from dflash.drafters.base import DrafterFacts
from dflash.drafters.context import ContextBook
from dflash.kv_cache import KVCache, PageTable
from dflash.plan import ContextMode, DraftPlan
from dflash.sequence import Sequence
from dflash.stats import WhyPlain

NO_DRAFTER = DrafterFacts(name="none", taps=(), max_draft_length=0, max_context=0)
"""The facts of having none: nothing can be drafted, and no context is kept."""


class Grants:
    """What a drafter allows the scheduler to plan for.

    Attributes:
        context: The book of the drafter's context.
    """

    def __init__(self, kv_cache: KVCache, facts: DrafterFacts = NO_DRAFTER) -> None:
        self.context = ContextBook(kv_cache.num_pages, kv_cache.page_size)
        self._kv_cache = kv_cache
        self._facts = facts

    def extend(self, table: PageTable, num_tokens: int) -> bool:
        """Grow a table as `KVCache.extend` does; its new pages hold no context."""
        count = len(table.pages)
        is_extended = self._kv_cache.extend(table, num_tokens)
        self.context.lent(table.pages[count:])
        return is_extended

    def reserve(self, table: PageTable, num_tokens: int, num_drafts: int) -> int:
        """Give a table pages for draft tokens too; return for how many they suffice.

        Nobody is preempted for a draft: only pages that no sequence owns are taken.
        """
        num_idle = self._kv_cache.num_free + self._kv_cache.num_cached
        most = (len(table.pages) + num_idle) * self._kv_cache.page_size - num_tokens
        num_drafts = min(num_drafts, most)
        self.extend(table, num_tokens + num_drafts)
        return num_drafts

    def is_followed(self, sequence: Sequence) -> bool:
        """Whether the context holds, or is to hold, all its computed tokens."""
        return sequence.num_tokens - 1 <= self._facts.max_context

    def num_context(self, sequence: Sequence, table: PageTable, known: int = 0) -> int:
        """Return how many computed tokens of a sequence have context in its pages.

        Args:
            sequence: Whose.
            table: Its pages.
            known: So many are known to have it.
        """
        most = min(sequence.num_computed, self._facts.max_context)
        return self.context.length(table.pages, most, min(known, most))

    def num_behind(self, sequence: Sequence, table: PageTable, plan: DraftPlan) -> int:
        """Return how many computed tokens the target has to compute again for the context.

        0 where the sequence is longer than the drafter was trained for: it drafts no more. And
        where the drafter failed to take its context: it goes on without for a while.
        """
        if sequence.num_context < sequence.num_computed:
            # Its pages may have been replaced by others', and those have caught up, since.
            sequence.num_context = self.num_context(sequence, table, sequence.num_context)
        if plan.context is ContextMode.COLD or not self.is_followed(sequence):
            return 0
        if sequence.num_tokens < sequence.catch_up_at:
            return 0
        return sequence.num_computed - sequence.num_context

    def wanted(self, sequence: Sequence, plan: DraftPlan) -> int | WhyPlain:
        """Return the draft tokens for a sequence that decodes, or why there will be none."""
        length = min(plan.length_for(sequence.request.request_id), self._facts.max_draft_length)
        if length == 0:
            return WhyPlain.PLAN
        if not self.is_followed(sequence):
            return WhyPlain.CONTEXT_TOO_LONG
        if sequence.num_context < sequence.num_computed:
            return WhyPlain.CATCHING_UP
        # A verify run emits one token more than it keeps of the draft. The request's own budget
        # also ends it within the model's positions: it would not have been admitted otherwise.
        return min(length, sequence.num_left - 1) or WhyPlain.BUDGET

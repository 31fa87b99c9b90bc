"""How many draft tokens each sequence may have, by everything that bounds them but the budget."""

from collections.abc import Iterable
from collections.abc import Sequence as Items

from dflash.drafters.base import DrafterFacts
from dflash.errors import ConfigError
from dflash.kv_cache import KVCache, PageTable
from dflash.plan import NO_DRAFTER, PLAIN, Arm, DraftPlan
from dflash.rung import Rung
from dflash.sequence import Sequence
from dflash.stats import WhyPlain


class Grants:
    """What the drafters of an engine allow the scheduler to plan for.

    Attributes:
        rungs: The drafters by name, in their order; none where nothing can be drafted.
    """

    def __init__(self, kv_cache: KVCache, drafters: Iterable[DrafterFacts] = ()) -> None:
        """Start with empty contexts.

        Raises:
            ConfigError: Two drafters cannot be told apart.
        """
        self.rungs: dict[str, Rung] = {}
        self._kv_cache = kv_cache
        for facts in drafters:
            if facts.name in (*self.rungs, NO_DRAFTER):
                raise ConfigError(
                    f"two drafters are named {facts.name!r}; an engine takes one of each kind"
                )
            self.rungs[facts.name] = Rung(facts, kv_cache)

    def lent(self, pages: Items[int]) -> None:
        """Enter that these pages begin anew: no drafter has context in them."""
        for rung in self.rungs.values():
            rung.context.lent(pages)

    def forget(self, drafter: str, sequences: Iterable[Sequence]) -> None:
        """Enter that a drafter's context is lost, of these sequences and in all pages."""
        self.rungs[drafter].context.clear()
        for sequence in sequences:
            following = sequence.followed_by[drafter]
            following.num_context = 0
            following.tails.clear()

    def extend(self, table: PageTable, num_tokens: int) -> bool:
        """Grow a table as `KVCache.extend` does; its new pages hold no context."""
        count = len(table.pages)
        is_extended = self._kv_cache.extend(table, num_tokens)
        self.lent(table.pages[count:])
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

    def num_behind(self, sequence: Sequence, table: PageTable, plan: DraftPlan) -> int:
        """Return how many computed tokens the target has to compute again for warm contexts.

        One pass serves all of them: it begins where the one furthest behind ends.
        """
        request_id = sequence.request.request_id
        # All are asked: this is where a drafter finds its context in pages that others filled.
        behind = {name: self.rungs[name].num_behind(sequence, table) for name in plan.warm}
        is_decoding = sequence.is_decoding
        counting = (
            num
            for name, num in behind.items()
            if plan.catches_up(name, request_id, is_decoding=is_decoding)
        )
        return max(counting, default=0)

    def wanted(self, sequence: Sequence, plan: DraftPlan) -> Arm | WhyPlain:
        """Return who drafts how much for a sequence that decodes, or why nobody will."""
        arm, most = plan.arm_for(sequence.request.request_id), sequence.request.max_draft_length
        if most == 0:
            return WhyPlain.REQUEST
        if arm == PLAIN:
            return WhyPlain.PLAN
        wanted = self._wanted(sequence, arm)
        if wanted is WhyPlain.CATCHING_UP and plan.taking_over is not None:
            before = plan.taking_over
            wanted = before if before == PLAIN else self._wanted(sequence, before)
            # Neither follows it, and nobody catches up with it: the plan has it decode plainly.
            return WhyPlain.PLAN if wanted in (PLAIN, WhyPlain.CATCHING_UP) else wanted
        return wanted

    def _wanted(self, sequence: Sequence, arm: Arm) -> Arm | WhyPlain:
        most = sequence.request.max_draft_length
        length = arm.draft_length if most is None else min(arm.draft_length, most)
        wanted = self.rungs[arm.drafter].wanted(sequence, length)
        return wanted if isinstance(wanted, WhyPlain) else Arm(arm.drafter, wanted)

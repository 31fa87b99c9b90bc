"""The DFlash drafter, versions 1 and 2: a block of draft tokens from one pass."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dflash.batch import Batch, Run, batch_from_runs
from dflash.drafters.base import ContextRows, DrafterFacts, DrafterKind, DraftRow
from dflash.drafters.config import DFlashConfig
from dflash.drafters.dflash_program import SELECTOR_STATE
from dflash.drafters.names import LOGITS
from dflash.drafters.walk import Scoring, Walk, WalkInput
from dflash.kernels.pages import KVPages
from dflash.runner import Executor


@dataclass(frozen=True, slots=True)
class DFlashDrafter:
    """A loaded drafter.

    The pass always fills the whole block it was trained for; only the head, and the walk over its
    candidates, stop at the slots that were asked for.

    Attributes:
        config: Its sizes and constants.
        context: Computes `context_program`.
        block: Computes `block_program` over the same pages.
        walk: Chooses among the candidates.
        scoring: How logits become scores.
        max_runs: Scratch pages there are: most blocks of one pass. More rows take more passes.
        pages: Hold the context.
    """

    config: DFlashConfig
    context: Executor
    block: Executor
    walk: Walk
    scoring: Scoring
    max_runs: int
    pages: KVPages

    @property
    def facts(self) -> DrafterFacts:
        """The facts that scheduling needs."""
        return DrafterFacts(
            name=DrafterKind.DFLASH if self.config.version == 1 else DrafterKind.DFLASH2,
            taps=self.config.target_layer_ids,
            max_draft_length=self.config.max_draft_length,
            max_context=self.config.max_position_embeddings,
            drafts_whole_block=True,
        )

    def propose(self, rows: Sequence[DraftRow]) -> list[tuple[int, ...]]:
        """Return up to ``num_drafts`` token ids for each row, in order; the context stays as it is.

        A slot for which nothing finite came out ends its row's draft.
        """
        drafts: list[tuple[int, ...]] = []
        for first in range(0, len(rows), self.max_runs):
            some = rows[first : first + self.max_runs]
            outputs = self.block.run(block_batch(self.config, some))
            states = outputs.get(SELECTOR_STATE)
            drafts += self.walk(WalkInput(outputs[LOGITS], states, some, self.scoring))
        return drafts

    def release_context(self) -> None:
        """Give the memory of the context's pages back; nothing is left in them."""
        self.pages.release()

    def observe(self, features: Tensor, commits: Sequence[ContextRows]) -> None:
        """Extend the context by committed tokens.

        Shapes:
            features: ``[num_tokens, len(taps) * hidden]``, the step's tapped rows side by side in
                the order of the taps; rows of no commit are left out.
        """
        if commits:
            self.context.run(context_batch(features, commits))


def block_batch(config: DFlashConfig, rows: Sequence[DraftRow]) -> Batch:
    """Return the draft blocks of rows: the anchor, then mask tokens, each block in its run."""
    masks = (config.mask_token_id,) * (config.block_size - 1)
    runs = [Run((row.anchor, *masks), row.position, row.page_table, row.num_drafts) for row in rows]
    return batch_from_runs(runs, block_size=config.block_size)


def context_batch(features: Tensor, commits: Sequence[ContextRows]) -> Batch:
    """Return the committed tokens of a step, each sequence's in its run, with their features."""
    # Which tokens they are is in the features already.
    runs = [Run((0,) * len(c.rows), c.start, c.page_table, num_logits=0) for c in commits]
    kept = [features[c.rows.start : c.rows.stop] for c in commits]
    return batch_from_runs(runs, kept[0] if len(kept) == 1 else torch.cat(kept))

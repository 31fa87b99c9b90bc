"""The DFlash drafter, versions 1 and 2: a block of draft tokens from one pass."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dflash.batch import Batch
from dflash.drafters.base import ContextRows, DrafterFacts, DraftRow
from dflash.drafters.config import DFlashConfig
from dflash.drafters.dflash_program import LOGITS, SELECTOR_STATE
from dflash.drafters.walk import Scoring, Walk, WalkInput
from dflash.kernels.pages import PAGE_SIZE
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
    """

    config: DFlashConfig
    context: Executor
    block: Executor
    walk: Walk
    scoring: Scoring
    max_runs: int

    @property
    def facts(self) -> DrafterFacts:
        """The facts that scheduling needs."""
        return DrafterFacts(
            name="dflash" if self.config.version == 1 else "dflash2",
            taps=self.config.target_layer_ids,
            max_draft_length=self.config.block_size - 1,
            max_context=self.config.max_position_embeddings,
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
    size, count = config.block_size, len(rows)
    ids = np.full((count, size), config.mask_token_id, dtype=np.int64)
    ids[:, 0] = [row.anchor for row in rows]
    slots = np.arange(size, dtype=np.int32)
    starts = np.array([row.position for row in rows], dtype=np.int32)
    num_drafts = np.array([row.num_drafts for row in rows])
    # Slot 0 holds the anchor: what it predicts is known.
    is_wanted = (slots > 0) & (slots <= num_drafts[:, None])
    return Batch(
        token_ids=torch.from_numpy(ids.reshape(-1)),
        positions=torch.from_numpy((starts[:, None] + slots).reshape(-1)),
        run_of_token=torch.from_numpy(np.repeat(np.arange(count, dtype=np.int32), size)),
        run_offsets=torch.from_numpy(np.arange(count + 1, dtype=np.int32) * np.int32(size)),
        page_tables=_page_tables([(row.page_table, row.position) for row in rows]),
        logit_rows=torch.from_numpy(np.flatnonzero(is_wanted).astype(np.int32)),
        block_size=size,
    )


def context_batch(features: Tensor, commits: Sequence[ContextRows]) -> Batch:
    """Return the committed tokens of a step, each sequence's in its run, with their features."""
    counts = [len(commit.rows) for commit in commits]
    kept = np.concatenate([np.asarray(commit.rows, dtype=np.int64) for commit in commits])
    positions = np.concatenate(
        [
            np.arange(c.start, c.start + n, dtype=np.int32)
            for c, n in zip(commits, counts, strict=True)
        ]
    )
    runs = np.repeat(np.arange(len(commits), dtype=np.int32), counts)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    ends = [(c.page_table, c.start + n) for c, n in zip(commits, counts, strict=True)]
    return Batch(
        # Which tokens they are is in the features already.
        token_ids=torch.zeros(len(kept), dtype=torch.int64),
        positions=torch.from_numpy(positions),
        run_of_token=torch.from_numpy(runs),
        run_offsets=torch.from_numpy(offsets),
        page_tables=_page_tables(ends),
        logit_rows=torch.empty(0, dtype=torch.int32),
        features=features[torch.from_numpy(kept)],
    )


def _page_tables(sequences: Sequence[tuple[Sequence[int], int]]) -> Tensor:
    """Return the pages of the first tokens of each sequence, padded with -1.

    Args:
        sequences: Page table and number of tokens of each.
    """
    counts = [-(-num_tokens // PAGE_SIZE) for _, num_tokens in sequences]
    tables = np.full((len(sequences), max(*counts, 1)), -1, dtype=np.int32)
    for row, count, (table, _) in zip(tables, counts, sequences, strict=True):
        row[:count] = table[:count]
    return torch.from_numpy(tables)

"""The MTP drafter: one layer behind the target's last, chained for a token at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dflash.batch import Run, batch_from_runs
from dflash.drafters.base import ContextRows, DrafterFacts, DraftRow
from dflash.drafters.dflash_program import LOGITS
from dflash.drafters.mtp_config import MtpConfig
from dflash.drafters.mtp_places import page_tables, places_of_commits, places_of_heads
from dflash.drafters.mtp_program import EMBEDDED, STATE
from dflash.drafters.walk import Scoring, Walk, WalkInput
from dflash.kernels.pages import PAGE_SIZE
from dflash.program import EMBEDDING_TAP
from dflash.runner import Executor


@dataclass(frozen=True, slots=True)
class MtpDrafter:
    """A loaded MTP head.

    A chain begins with the anchor and the state that the target left before it, and goes on with
    each drafted token and the head's own state. What its links write lies at and after the anchor,
    in pages that are the sequence's alone, and is written anew when those tokens are committed.

    Attributes:
        config: Its sizes and constants.
        num_target_layers: Layers of its target.
        embedding: Computes `embedding_program`.
        context: Computes `context_program`.
        first_link: Computes `link_program` of a chain's first link, over the same pages.
        next_link: The same of all others.
        walk: Chooses among the candidates of a link.
        scoring: How logits become scores.
        states: What the target's last layer gave for the tokens of the context, by page and slot,
            ``[pages * 16, hidden]``.
    """

    config: MtpConfig
    num_target_layers: int
    embedding: Executor
    context: Executor
    first_link: Executor
    next_link: Executor
    walk: Walk
    scoring: Scoring
    states: Tensor

    @property
    def facts(self) -> DrafterFacts:
        """The facts that scheduling needs."""
        return DrafterFacts(
            name="mtp",
            taps=(EMBEDDING_TAP, self.num_target_layers - 1),
            max_draft_length=self.config.max_draft_length,
            max_context=self.config.max_position_embeddings,
        )

    def propose(self, rows: Sequence[DraftRow]) -> list[tuple[int, ...]]:
        """Return up to ``num_drafts`` token ids for each row, in order; the context stays as it is.

        A row's chain ends early where nothing finite came out, or its pages end; one without a
        token before its anchor has none.
        """
        drafts: list[list[int]] = [[] for _ in rows]
        tables = page_tables(
            [row.page_table for row in rows], [row.position + row.num_drafts for row in rows]
        )
        going = [index for index, row in enumerate(rows) if row.position > 0]
        link, states = self.first_link, None
        while going:
            heads = [_head(rows[index], drafts[index]) for index in going]
            places = places_of_heads(tables[going], [head.position for head in heads])
            if states is None:
                states = self.states[places.slots(num_behind=1)]
            pairs = torch.cat([self._embedded([head.anchor for head in heads]), states], dim=1)
            outputs = link.run(places.batch(pairs))
            chosen = self.walk(WalkInput(outputs[LOGITS], None, heads, self.scoring))
            kept = []
            for place, (index, ids) in enumerate(zip(going, chosen, strict=True)):
                drafts[index] += ids
                if ids and _goes_on(rows[index], len(drafts[index])):
                    kept.append(place)
            link, states = self.next_link, outputs[STATE][kept]
            going = [going[place] for place in kept]
        return [tuple(draft) for draft in drafts]

    def observe(self, features: Tensor, commits: Sequence[ContextRows]) -> None:
        """Extend the context by committed tokens.

        Shapes:
            features: ``[num_tokens, 2 * hidden]``, what the target's first layer read beside what
                its last one gave; rows of no commit are left out.
        """
        if not commits:
            return
        places = places_of_commits(commits)
        kept = np.concatenate([np.asarray(commit.rows, dtype=np.int64) for commit in commits])
        embedded, states = features[torch.from_numpy(kept)].split(self.config.hidden_size, dim=1)
        self.states[places.slots()] = states
        # The state before a token may be of this step, or of one long ago, or in a shared page.
        preceded = places.preceded()
        if preceded.size:
            pairs = places.some(preceded)
            before = self.states[pairs.slots(num_behind=1)]
            rows = torch.cat([embedded[torch.from_numpy(preceded)], before], dim=1)
            self.context.run(pairs.batch(rows))

    def _embedded(self, token_ids: Sequence[int]) -> Tensor:
        """Return the rows that the target's first layer reads of tokens, ``[tokens, hidden]``."""
        run = Run(tuple(token_ids), 0, (0,), 0)
        return self.embedding.run(batch_from_runs([run]))[EMBEDDED]


def _head(row: DraftRow, draft: Sequence[int]) -> DraftRow:
    """Return the row of a chain's next link: its newest token asks for one more."""
    return DraftRow(
        anchor=draft[-1] if draft else row.anchor,
        position=row.position + len(draft),
        page_table=row.page_table,
        num_drafts=1,
        temperature=row.temperature,
        seed=row.seed,
        choice=row.choice,
    )


def _goes_on(row: DraftRow, num_drafted: int) -> bool:
    room = len(row.page_table) * PAGE_SIZE - row.position
    return num_drafted < min(row.num_drafts, room)

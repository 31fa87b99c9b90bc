"""The MTP drafter: one layer behind the target's last, chained for a token at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dflash.batch import Batch, Run, batch_from_runs
from dflash.drafters.base import ContextRows, DrafterFacts, DrafterKind, DraftRow
from dflash.drafters.mtp_config import MtpConfig
from dflash.drafters.mtp_program import STATE
from dflash.drafters.names import LOGITS
from dflash.drafters.walk import Scoring, Walk, WalkInput
from dflash.kernels.pages import PAGE_SIZE, KVPages
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
        embedding: What the target's first layer reads of each token, ``[vocab, hidden]``.
        context: Computes `context_program`.
        first_link: Computes `link_program` of a chain's first link, over the same pages.
        next_link: The same of all others.
        walk: Chooses among the candidates of a link.
        scoring: How logits become scores.
        states: What the target's last layer gave for the tokens of the context, by page and slot,
            ``[pages * 16, hidden]``.
        pages: Hold the context, with ``states`` in the same memory.
    """

    config: MtpConfig
    num_target_layers: int
    embedding: Tensor
    context: Executor
    first_link: Executor
    next_link: Executor
    walk: Walk
    scoring: Scoring
    states: Tensor
    pages: KVPages

    @property
    def facts(self) -> DrafterFacts:
        """The facts that scheduling needs."""
        return DrafterFacts(
            name=DrafterKind.MTP,
            taps=(EMBEDDING_TAP, self.num_target_layers - 1),
            max_draft_length=self.config.max_draft_length,
            max_context=self.config.max_position_embeddings,
            drafts_whole_block=False,
        )

    def propose(self, rows: Sequence[DraftRow]) -> list[tuple[int, ...]]:
        """Return up to ``num_drafts`` token ids for each row, in order; the context stays as it is.

        A row's chain ends early where nothing finite came out, or its pages end; one without a
        token before its anchor has none.
        """
        drafts: list[list[int]] = [[] for _ in rows]
        going = [index for index, row in enumerate(rows) if row.position > 0]
        link, states = self.first_link, self._states_before([rows[index] for index in going])
        while going:
            heads = [_head(rows[index], drafts[index]) for index in going]
            outputs = link.run(self._link_batch(heads, states))
            chosen = self.walk(WalkInput(outputs[LOGITS], None, heads, self.scoring))
            kept = []
            for place, (index, ids) in enumerate(zip(going, chosen, strict=True)):
                drafts[index] += ids
                if ids and _goes_on(rows[index], len(drafts[index])):
                    kept.append(place)
            link, states = self.next_link, outputs[STATE][kept]
            going = [going[place] for place in kept]
        return [tuple(draft) for draft in drafts]

    def release_context(self) -> None:
        """Give the memory of the context's pages back; nothing is left in them."""
        self.pages.release()

    def observe(self, features: Tensor, commits: Sequence[ContextRows]) -> None:
        """Extend the context by committed tokens.

        Shapes:
            features: ``[num_tokens, 2 * hidden]``, what the target's first layer read beside what
                its last one gave; rows of no commit are left out.
        """
        if not commits:
            return
        kept = [features[commit.rows.start : commit.rows.stop] for commit in commits]
        hidden = self.config.hidden_size
        self.states[_slots(commits)] = torch.cat([rows[:, hidden:] for rows in kept])
        # A sequence's first token has no state before it. That of any other may be of this step,
        # or of one long ago, or lie in a page that others share.
        later = [_without_first(commit) for commit in commits]
        embedded = [
            rows[len(rows) - len(commit.rows) :, :hidden]
            for rows, commit in zip(kept, later, strict=True)
        ]
        runs = [
            Run((0,) * len(commit.rows), commit.start, commit.page_table, 0)
            for commit in later
            if commit.rows
        ]
        if runs:
            before = self.states[_slots(later, num_behind=1)]
            pairs = torch.cat([torch.cat(embedded), before], dim=1)
            self.context.run(batch_from_runs(runs, pairs))

    def _states_before(self, rows: Sequence[DraftRow]) -> Tensor:
        """Return what the target's last layer gave before each anchor, ``[rows, hidden]``."""
        return self.states[[_slot(row.page_table, row.position - 1) for row in rows]]

    def _link_batch(self, heads: Sequence[DraftRow], states: Tensor) -> Batch:
        """Return the pairs of heads, each in a run of its own."""
        runs = [Run((head.anchor,), head.position, head.page_table, 0) for head in heads]
        embedded = self.embedding[[head.anchor for head in heads]]
        return batch_from_runs(runs, torch.cat([embedded, states], dim=1))


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


def _without_first(commit: ContextRows) -> ContextRows:
    return commit if commit.start else replace(commit, start=1, rows=commit.rows[1:])


def _slots(commits: Sequence[ContextRows], num_behind: int = 0) -> list[int]:
    """Return the slot of each committed token, or of the one so many positions before it."""
    return [
        _slot(commit.page_table, position - num_behind)
        for commit in commits
        for position in range(commit.start, commit.start + len(commit.rows))
    ]


def _slot(page_table: Sequence[int], position: int) -> int:
    return page_table[position // PAGE_SIZE] * PAGE_SIZE + position % PAGE_SIZE

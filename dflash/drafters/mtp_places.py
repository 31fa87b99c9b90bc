"""Where tokens of several sequences lie in the pages, and the step that computes them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dflash.batch import Batch
from dflash.drafters.base import ContextRows
from dflash.kernels.pages import PAGE_SIZE

_Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Places:
    """Tokens of some sequences by position.

    Shapes:
        tables: ``[sequences, pages]`` int32, each sequence's pages in order, padded with -1.
        sequences: ``[tokens]`` int32, the sequence of each token, ascending.
        positions: ``[tokens]`` int32.
    """

    tables: _Ints
    sequences: _Ints
    positions: _Ints

    def slots(self, num_behind: int = 0) -> Tensor:
        """Return the slot of each token among those of all pages, ``[tokens]`` int64.

        Args:
            num_behind: Return the slots of the tokens so many positions before.
        """
        positions = self.positions - np.int32(num_behind)
        pages = self.tables[self.sequences, positions // PAGE_SIZE].astype(np.int64)
        return torch.from_numpy(pages * PAGE_SIZE + positions % PAGE_SIZE)

    def preceded(self) -> NDArray[np.int64]:
        """Return which tokens have another before them, as indices."""
        return np.flatnonzero(self.positions)

    def some(self, indices: NDArray[np.int64]) -> "Places":
        """Return some of the tokens."""
        return Places(self.tables, self.sequences[indices], self.positions[indices])

    def batch(self, features: Tensor) -> Batch:
        """Return the step over these tokens; which they are is in the features.

        Shapes:
            features: ``[tokens, width]``.
        """
        counts = np.bincount(self.sequences, minlength=len(self.tables))
        return Batch(
            token_ids=torch.zeros(len(self.positions), dtype=torch.int64),
            positions=torch.from_numpy(self.positions),
            run_of_token=torch.from_numpy(self.sequences),
            run_offsets=torch.from_numpy(np.append(0, counts.cumsum()).astype(np.int32)),
            page_tables=torch.from_numpy(self.tables),
            logit_rows=torch.empty(0, dtype=torch.int32),
            features=features,
        )


def places_of_heads(tables: _Ints, positions: Sequence[int]) -> Places:
    """Return one token of each sequence.

    Shapes:
        tables: ``[sequences, pages]`` int32.
    """
    count = np.arange(len(positions), dtype=np.int32)
    return Places(tables, count, np.array(positions, dtype=np.int32))


def places_of_commits(commits: Sequence[ContextRows]) -> Places:
    """Return the committed tokens of each sequence, in the order of the commits and their rows."""
    counts = [len(commit.rows) for commit in commits]
    ends = [commit.start + count for commit, count in zip(commits, counts, strict=True)]
    spans = [np.arange(c.start, end, dtype=np.int32) for c, end in zip(commits, ends, strict=True)]
    return Places(
        tables=page_tables([commit.page_table for commit in commits], ends),
        sequences=np.repeat(np.arange(len(commits), dtype=np.int32), counts),
        positions=np.concatenate(spans),
    )


def page_tables(tables: Sequence[Sequence[int]], lengths: Sequence[int]) -> _Ints:
    """Return the pages of the first tokens of each sequence, ``[sequences, pages]``.

    Args:
        tables: Pages of each sequence in order; one that has fewer than its length takes ends
            early.
        lengths: Tokens of each.
    """
    counts = [-(-length // PAGE_SIZE) for length in lengths]
    padded = np.full((len(tables), max(counts, default=0)), -1, dtype=np.int32)
    for row, count, table in zip(padded, counts, tables, strict=True):
        own = table[:count]
        row[: len(own)] = own
    return padded

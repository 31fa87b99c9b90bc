"""A schedule turned into tensors: one step's token runs. Every shape is written here."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive tokens of one sequence, computed in one step.

    A prefill chunk, a single decode token and a verify block differ only in their lengths.

    Attributes:
        token_ids: The tokens to compute, at least one.
        start: Position of the first of them; positions below it are already in the pages.
        page_table: Pages of the sequence in order, enough for ``start + len(token_ids)`` tokens.
        num_logits: Logits are wanted for this many last tokens of the run; 0 for a chunk that
            does not end its prompt.
    """

    token_ids: tuple[int, ...]
    start: int
    page_table: Sequence[int]
    num_logits: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's input to the target.

    Shapes:
        token_ids: ``[num_tokens]`` int64, runs concatenated in order.
        positions: ``[num_tokens]`` int32, position of each token in its sequence.
        run_of_token: ``[num_tokens]`` int32, the run each row belongs to.
        run_offsets: ``[num_runs + 1]`` int32, run r owns rows ``run_offsets[r]:run_offsets[r+1]``.
        page_tables: ``[num_runs, max_pages]`` int32, padded with -1; a pad is never read.
        logit_rows: ``[num_logits]`` int32, rows whose logits are wanted, ascending.
        features: ``[num_tokens, width]`` in the activation type, for a drafter's context; None in
            all other steps.

    Attributes:
        block_size: Slots of each run where the runs are draft blocks, all of one length; 0 where
            they are a sequence's own tokens.
    """

    token_ids: Tensor
    positions: Tensor
    run_of_token: Tensor
    run_offsets: Tensor
    page_tables: Tensor
    logit_rows: Tensor
    features: Tensor | None = None
    block_size: int = 0

    @property
    def num_tokens(self) -> int:
        """Rows of the step."""
        return self.token_ids.shape[0]

    @property
    def num_runs(self) -> int:
        """Sequences in the step."""
        return self.page_tables.shape[0]


def batch_from_runs(runs: Sequence[Run]) -> Batch:
    """Return the tensors of one step, on the CPU."""
    offsets, ids, positions, run_of_token, logit_rows = [0], [], [], [], []
    tables = np.full((len(runs), max(len(run.page_table) for run in runs)), -1, dtype=np.int32)
    for index, run in enumerate(runs):
        count = len(run.token_ids)
        end = offsets[-1] + count
        ids.extend(run.token_ids)
        positions.extend(range(run.start, run.start + count))
        run_of_token.extend([index] * count)
        logit_rows.extend(range(end - run.num_logits, end))
        tables[index, : len(run.page_table)] = run.page_table
        offsets.append(end)
    return Batch(
        token_ids=torch.tensor(ids, dtype=torch.int64),
        positions=torch.tensor(positions, dtype=torch.int32),
        run_of_token=torch.tensor(run_of_token, dtype=torch.int32),
        run_offsets=torch.tensor(offsets, dtype=torch.int32),
        page_tables=torch.from_numpy(tables),
        logit_rows=torch.tensor(logit_rows, dtype=torch.int32),
    )

"""A schedule turned into tensors: one step's token runs. Every shape is written here."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive tokens of one sequence, computed in one step.

    A prefill chunk, a single decode token and a verify block differ only in their lengths.

    Attributes:
        token_ids: The tokens to compute, at least one.
        start: Position of the first of them; positions below it are already in the pages.
        page_table: Pages of the sequence in order, enough for ``start + len(token_ids)`` tokens;
            of a draft block, which has a page of its own, for ``start``.
        num_logits: Logits are wanted for this many last tokens of the run; 0 for a chunk that
            does not end its prompt. Of a draft block, for this many after its anchor.
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


def batch_from_runs(
    runs: Sequence[Run], features: Tensor | None = None, block_size: int = 0
) -> Batch:
    """Return the tensors of one step, on the CPU.

    A step finds every cache full of weights, so that a library function costs what it takes to
    fetch its code: numbers of 32 bits are gathered as integers and become parts of one tensor.

    Args:
        runs: What each sequence computes, in the order of the rows; at least one.
        features: As in `Batch`; None where the forward reads tokens.
        block_size: As in `Batch`; 0 where no run is a draft block.
    """
    ids, positions, owners, offsets = [], [], [], [0]
    wanted, tables = [], []
    width = max([len(run.page_table) for run in runs])
    for index, run in enumerate(runs):
        count, first = len(run.token_ids), offsets[-1]
        offsets.append(first + count)
        ids += run.token_ids
        positions += range(run.start, run.start + count)
        owners += [index] * count
        first_wanted = first + 1 if block_size else first + count - run.num_logits
        wanted += range(first_wanted, first_wanted + run.num_logits)
        tables += run.page_table
        tables += [-1] * (width - len(run.page_table))
    whole = torch.frombuffer(
        array("i", positions + owners + offsets + wanted + tables), dtype=torch.int32
    )
    num_tokens, wanted_at = len(ids), 2 * len(ids) + len(offsets)
    return Batch(
        token_ids=torch.frombuffer(array("q", ids), dtype=torch.int64),
        positions=whole[:num_tokens],
        run_of_token=whole[num_tokens : 2 * num_tokens],
        run_offsets=whole[2 * num_tokens : wanted_at],
        page_tables=whole[wanted_at + len(wanted) :].view(len(runs), width),
        logit_rows=whole[wanted_at : wanted_at + len(wanted)],
        features=features,
        block_size=block_size,
    )

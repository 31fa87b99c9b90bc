"""Measure at start whether a form's rows are independent of what is computed beside them."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from dflash.batch import Run, batch_from_runs
from dflash.runner import Executor

# Past one page, so that a page boundary lies inside; not a multiple of any tile.
_LENGTH = 21
_NEIGHBOUR_LENGTH = 33
_PAGES = range(2)
# What the executor must have room for, whatever it serves later.
PROBE_PAGES = 7
PROBE_POSITIONS = _NEIGHBOUR_LENGTH


def first_difference(executor: Executor, vocab_size: int) -> str | None:
    """Return where the same position got other bits, or None where it never did.

    The logits of one sequence computed a token at a time, alone, are compared with those of the
    same sequence prefilled at once, in chunks, verified in blocks, and inside a mixed batch. Uses
    the first ``PROBE_PAGES`` pages.
    """
    ids = _ids(_LENGTH, vocab_size, seed=1)
    alone = torch.cat([_logits(executor, ids[i : i + 1], i) for i in range(_LENGTH)])
    for name, arm in _ARMS:
        for start, logits in arm(executor, ids, vocab_size):
            expected = alone[start : start + logits.shape[0]]
            same = (logits.view(torch.int32) == expected.view(torch.int32)).all(dim=-1)
            if not bool(same.all()):
                return f"position {start + int((~same).nonzero()[0])} {name}"
    return None


def _ids(count: int, vocab_size: int, seed: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(vocab_size, (count,), generator=generator).tolist())


def _logits(executor: Executor, ids: tuple[int, ...], start: int) -> Tensor:
    batch = batch_from_runs([Run(ids, start, _PAGES, len(ids))])
    return executor.forward(batch).logits.clone()


def _prefilled(
    executor: Executor, ids: tuple[int, ...], _vocab_size: int
) -> Iterator[tuple[int, Tensor]]:
    yield 0, _logits(executor, ids, 0)


def _in_chunks(
    executor: Executor, ids: tuple[int, ...], _vocab_size: int
) -> Iterator[tuple[int, Tensor]]:
    for start, end in ((0, 5), (5, 13), (13, 20), (20, 21)):
        yield start, _logits(executor, ids[start:end], start)


def _in_a_batch(
    executor: Executor, ids: tuple[int, ...], vocab_size: int
) -> Iterator[tuple[int, Tensor]]:
    """A verify block between a longer prefill and single tokens, at two places in the batch."""
    start = 9
    own = Run(ids[start:17], start, _PAGES, 8)
    others = [
        Run(_ids(_NEIGHBOUR_LENGTH, vocab_size, seed=2), 0, range(2, 5), 1),
        Run(_ids(1, vocab_size, seed=3), 0, range(5, 6), 1),
        Run(_ids(2, vocab_size, seed=4), 0, range(6, 7), 2),
    ]
    for place in (0, 1, 3):
        runs = [*others[:place], own, *others[place:]]
        first = sum(run.num_logits for run in others[:place])
        yield start, executor.forward(batch_from_runs(runs)).logits[first : first + 8].clone()


_Arm = Callable[[Executor, tuple[int, ...], int], Iterator[tuple[int, Tensor]]]
_ARMS: tuple[tuple[str, _Arm], ...] = (
    ("when prefilled in one run", _prefilled),
    ("when computed in chunks", _in_chunks),
    ("beside other requests", _in_a_batch),
)

"""The door to the walk over a draft block's candidates: numpy or compiled, the same ids."""

import ctypes
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from dflash.drafters.base import DraftRow
from dflash.drafters.walk import WalkInput, walk_reference
from dflash.errors import KernelError
from dflash.kernels.draw_library import draw_library

# One row of the compiled form's table: the struct `walk_row` of csrc/walk.c.
_ROW = np.dtype(
    [
        ("seed", np.uint64),
        ("choice", np.uint32),
        ("position", np.uint32),
        ("temperature", np.float64),
        ("anchor", np.int64),
        ("first_slot", np.int64),
        ("num_slots", np.int64),
    ],
    align=True,
)


class _Slots(ctypes.Structure):
    """What all rows share; mirrors ``walk_slots`` in csrc/walk.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("logits", "states", "target_ids")),
        *((name, ctypes.c_void_p) for name in ("predecessors", "successors")),
        *((name, ctypes.c_int64) for name in ("columns", "logits_stride")),
        *((name, ctypes.c_int64) for name in ("rank", "states_stride")),
        ("softcap", ctypes.c_double),
        ("multiplier", ctypes.c_float),
        *((name, ctypes.c_int32) for name in ("num_candidates", "dtype")),
    )


def walk(request: WalkInput) -> list[tuple[int, ...]]:
    """Return the draft tokens of each row, as `dflash.drafters.walk.Walk` has them.

    Rows are walked one by one, each by its own slots and key; only threads are shared.

    Raises:
        KernelError: The slots are of another type or layout, or an anchor has no row in the
            selector's table.
    """
    library = draw_library()
    if library is None:
        return walk_reference(request)
    table = _table(request.rows)
    _check(request, table)
    slots = _slots(request)
    token_ids = np.empty(request.logits.shape[0], dtype=np.int64)
    counts = np.empty(len(table), dtype=np.int64)
    library.dflash_walk(
        ctypes.byref(slots),
        table.ctypes.data,
        len(table),
        token_ids.ctypes.data,
        counts.ctypes.data,
        # The engine's own number of threads: an OpenMP default would take every CPU.
        torch.get_num_threads(),
    )
    ids = token_ids.tolist()
    firsts = table["first_slot"].tolist()
    return [
        tuple(ids[first : first + count])
        for first, count in zip(firsts, counts.tolist(), strict=True)
    ]


def _table(rows: Sequence[DraftRow]) -> np.ndarray:
    firsts = accumulate((row.num_drafts for row in rows), initial=0)
    return np.array(
        [
            (r.seed, r.choice, r.position, r.temperature, r.anchor, first, r.num_drafts)
            for r, first in zip(rows, firsts, strict=False)
        ],
        dtype=_ROW,
    )


def _slots(request: WalkInput) -> _Slots:
    logits, states, scoring = request.logits, request.states, request.scoring
    slots = _Slots(
        logits=logits.data_ptr(),
        target_ids=None if scoring.target_ids is None else scoring.target_ids.data_ptr(),
        columns=logits.shape[1],
        logits_stride=logits.stride(0),
        softcap=scoring.softcap or 0.0,
        multiplier=scoring.multiplier,
        num_candidates=scoring.num_candidates,
    )
    if scoring.selector is not None and states is not None:
        predecessors, successors = scoring.selector.predecessors, scoring.selector.successors
        slots.states, slots.states_stride = states.data_ptr(), states.stride(0)
        slots.predecessors, slots.successors = predecessors.data_ptr(), successors.data_ptr()
        slots.rank = predecessors.shape[1]
        slots.dtype = int(predecessors.dtype == torch.bfloat16)
    return slots


def _check(request: WalkInput, table: np.ndarray) -> None:
    """Refuse what the compiled form would read past the end of."""
    wanted = int(table["num_slots"].sum())
    _check_rows("logits", request.logits, wanted)
    if request.states is not None:
        _check_rows("states", request.states, wanted)
    if request.scoring.selector is not None and wanted:
        anchors, num_ids = table["anchor"], request.scoring.selector.predecessors.shape[0]
        if anchors.min() < 0 or anchors.max() >= num_ids:
            raise KernelError(
                f"anchors reach from {anchors.min()} to {anchors.max()}; the selector has ids 0 "
                f"to {num_ids - 1}"
            )


def _check_rows(name: str, rows: Tensor, count: int) -> None:
    is_plain = rows.dtype == torch.float32 and rows.device.type == "cpu" and rows.stride(1) == 1
    if not is_plain or rows.shape[0] != count:
        raise KernelError(
            f"{name} are {rows.dtype} {tuple(rows.shape)} on {rows.device}; the walk takes "
            f"contiguous float32 rows on the CPU, here {count}"
        )

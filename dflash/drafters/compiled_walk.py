"""The door to the walk over a draft block's candidates: numpy or compiled, the same ids."""

import ctypes
from itertools import accumulate
from struct import Struct

import torch
from torch import Tensor

from dflash.drafters.walk import WalkInput, walk_reference
from dflash.errors import KernelError
from dflash.kernels.draw_library import draw_library

# One row of the compiled form's table: the struct `walk_row` of csrc/walk.c.
_ROW = Struct("=QIIdqqq")


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
    rows, num_slots = request.rows, request.logits.shape[0]
    firsts = list(accumulate([row.num_drafts for row in rows], initial=0))
    _check(request, firsts[-1])
    table = b"".join(
        [
            _ROW.pack(r.seed, r.choice, r.position, r.temperature, r.anchor, first, r.num_drafts)
            for r, first in zip(rows, firsts, strict=False)
        ]
    )
    # Plain arrays: numpy's would be made and read by code that a step finds in no cache.
    token_ids, counts = (ctypes.c_int64 * num_slots)(), (ctypes.c_int64 * len(rows))()
    library.dflash_walk(
        ctypes.byref(_slots(request)),
        table,
        len(rows),
        token_ids,
        counts,
        # The engine's own number of threads: an OpenMP default would take every CPU.
        torch.get_num_threads(),
    )
    return [
        tuple(token_ids[first : first + count])
        for first, count in zip(firsts, counts, strict=False)
    ]


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


def _check(request: WalkInput, wanted: int) -> None:
    """Refuse what the compiled form would read past the end of."""
    _check_rows("logits", request.logits, wanted)
    if request.states is not None:
        _check_rows("states", request.states, wanted)
    if request.scoring.selector is not None:
        num_ids = request.scoring.selector.predecessors.shape[0]
        for row in request.rows:
            if not 0 <= row.anchor < num_ids:
                raise KernelError(
                    f"anchor is {row.anchor}; the selector has ids 0 to {num_ids - 1}"
                )


def _check_rows(name: str, rows: Tensor, count: int) -> None:
    is_plain = rows.dtype == torch.float32 and rows.device.type == "cpu" and rows.stride(1) == 1
    if not is_plain or rows.shape[0] != count:
        raise KernelError(
            f"{name} are {rows.dtype} {tuple(rows.shape)} on {rows.device}; the walk takes "
            f"contiguous float32 rows on the CPU, here {count}"
        )

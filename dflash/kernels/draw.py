"""The door to the draw of a token: a numpy reference and a compiled CPU form, the same ids."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dflash.errors import KernelError
from dflash.kernels.draw_library import draw_library
from dflash.noise import NoiseKey, gumbel_noise
from dflash.portable_math import Floats, mass_of, natural_log

Logits = NDArray[np.float32]

# One row of the compiled form's table: the struct `draw_row` of csrc/draw.c.
_ROW = np.dtype(
    [
        ("logits", np.uintp),
        ("seed", np.uint64),
        ("choice", np.uint32),
        ("position", np.uint32),
        ("temperature", np.float64),
        ("top_p", np.float64),
        ("least_score", np.float64),
        ("top_k", np.int64),
    ],
    align=True,
)


@dataclass(frozen=True, slots=True)
class Draw:
    """How the token of one row is drawn from its processed logits.

    Attributes:
        key: Which noise.
        temperature: 0 takes the largest logit; then the other attributes have no effect.
        top_k: 0 keeps all.
        top_p: 1 keeps all.
        min_p: 0 keeps all.
    """

    key: NoiseKey
    temperature: float
    top_k: int
    top_p: float
    min_p: float


def draw(rows: Sequence[Tensor], draws: Sequence[Draw]) -> list[int | None]:
    """Return the token id of each row; None where a logit is NaN or inf, or none is finite.

    The score of an id is ``(logit - largest) / temperature``: never over 0, so no temperature,
    however small, overflows. Order the ids by logit, largest first, ties to the lower id. top-k
    keeps the first k of them; top-p the shortest prefix of those whose mass reaches its share of
    theirs; min-p what scores at least ``log(min_p)``. Of what is kept, the largest score plus
    noise is drawn, again ties to the lower id.

    An id's fate depends on its own row and key alone: rows are computed one by one, in exact
    sums, and only threads are shared.

    Shapes:
        rows: each ``[vocab]`` float32, contiguous, all of one vocabulary; -inf bans an id.

    Raises:
        KernelError: A row has another type, layout or length.
    """
    _check_rows(rows)
    library = draw_library()
    if library is None:
        return [draw_reference(row.numpy(), how) for row, how in zip(rows, draws, strict=True)]
    table = np.array(
        [_table_row(row, how) for row, how in zip(rows, draws, strict=True)], dtype=_ROW
    )
    token_ids = np.empty(len(rows), dtype=np.int64)
    vocab = rows[0].shape[0] if rows else 0
    # The engine's own number of threads: an OpenMP default would take every CPU.
    num_threads = torch.get_num_threads()
    library.dflash_draw(table.ctypes.data, len(rows), vocab, token_ids.ctypes.data, num_threads)
    return [token_id if token_id >= 0 else None for token_id in token_ids.tolist()]


def draw_reference(logits: Logits, how: Draw) -> int | None:
    """Return the token id of one row, every score computed in full."""
    largest = logits.max()
    if not math.isfinite(largest):
        return None
    if how.temperature == 0.0:
        return int(np.argmax(logits))
    with np.errstate(over="ignore"):
        scores = (logits.astype(np.float64) - np.float64(largest)) / how.temperature
    allowed = allowed_ids(logits, scores, how)
    perturbed = scores[allowed] + gumbel_noise(how.key, allowed)
    return int(allowed[np.argmax(perturbed)])


def allowed_ids(logits: Logits, scores: Floats, how: Draw) -> NDArray[np.int64]:
    """Return the ids that top-k, top-p and min-p leave, in ascending order."""
    order = np.argsort(-logits, kind="stable")
    order = order[logits[order] > -np.inf]
    if how.top_k > 0:
        order = order[: how.top_k]
    if how.top_p < 1.0:
        mass = np.cumsum(mass_of(scores[order]))
        total = int(mass[-1])
        share = min(max(math.ceil(how.top_p * float(total)), 1), total)
        order = order[: np.searchsorted(mass, share) + 1]
    return np.sort(order[scores[order] >= _least_score(how.min_p)])


def _check_rows(rows: Sequence[Tensor]) -> None:
    for row in rows:
        is_plain = row.dtype == torch.float32 and row.device.type == "cpu" and row.dim() == 1
        if not is_plain or not row.is_contiguous() or row.shape != rows[0].shape:
            raise KernelError(
                f"a row of logits is {row.dtype} {tuple(row.shape)} on {row.device}; draw takes "
                f"contiguous float32 rows of one vocabulary on the CPU"
            )


def _least_score(min_p: float) -> float:
    """Return the logarithm of min-p; that of the least normal number where it is below that."""
    if min_p == 0.0:
        return -math.inf
    return float(natural_log(np.array([max(min_p, sys.float_info.min)]))[0])


def _table_row(row: Tensor, how: Draw) -> tuple[int | float, ...]:
    """Return a row of the compiled form's table."""
    key = how.key
    return (
        row.data_ptr(),
        key.seed,
        key.choice,
        key.position,
        how.temperature,
        how.top_p,
        _least_score(how.min_p),
        how.top_k,
    )

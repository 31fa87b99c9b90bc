"""The door to what log-probabilities need of a row: its total mass and its largest logits."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dflash.kernels.draw_library import draw_library
from dflash.portable_math import mass_of


def total_mass(logits: Tensor) -> int:
    """Return the sum of the row's masses, in units of which the largest logit has 2**43.

    Shapes:
        logits: ``[vocab]`` float32, contiguous, on the CPU; no NaN, no inf, not all -inf.
    """
    library = draw_library()
    if library is not None:
        return library.dflash_total_mass(logits.data_ptr(), logits.shape[0])
    values = logits.numpy().astype(np.float64)
    return int(mass_of(values - values.max()).sum())


def largest_ids(logits: Tensor, count: int) -> NDArray[np.int64]:
    """Return the ids of the row's largest logits, largest first, ties to the lower id.

    Ids at -inf are not among them.

    Shapes:
        logits: as for `total_mass`.
    """
    values = logits.numpy()
    library = draw_library()
    if library is None or not 0 < count < values.size:
        order = np.argsort(-values, kind="stable")[:count]
        return order[values[order] > -np.inf]
    found = np.empty(count, dtype=np.int64)
    size = library.dflash_largest(logits.data_ptr(), values.size, count, found.ctypes.data)
    return found[:size][np.argsort(-values[found[:size]], kind="stable")]

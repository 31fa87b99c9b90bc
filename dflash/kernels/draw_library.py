"""The compiled functions behind `draw`, `mass` and `walk`, used only where they equal numpy's."""

import ctypes
import functools
import logging

import numpy as np

from dflash.kernels.build import native_library
from dflash.noise import NoiseKey, gumbel_noise
from dflash.portable_math import mass_of

_logger = logging.getLogger(__name__)

_POINTER, _INT64 = ctypes.c_void_p, ctypes.c_int64
_SIGNATURES = {
    "dflash_draw": (None, [_POINTER, _INT64, _INT64, _POINTER, _INT64]),
    "dflash_noise": (None, [ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32, _INT64, _POINTER]),
    "dflash_total_mass": (_INT64, [_POINTER, _INT64]),
    "dflash_largest": (_INT64, [_POINTER, _INT64, _INT64, _POINTER]),
    "dflash_walk": (None, [_POINTER, _POINTER, _INT64, _POINTER, _POINTER, _INT64]),
}
_NUM_COMPARED = 4096


@functools.cache
def draw_library() -> ctypes.CDLL | None:
    """Return the compiled functions; None where the numpy forms are to be used.

    A compiler that fuses a multiply with an add, against what the source asks, would move the
    last bit of the noise, and a token with it. So a build has to reproduce numpy's bits first.
    """
    library = native_library()
    if library is None:
        return None
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    if not reproduces_numpy(library):
        _logger.warning(
            "the compiled sampling kernels round differently from numpy on this machine; "
            "sampling uses numpy, with the same tokens and more time a step"
        )
        return None
    return library


def reproduces_numpy(library: ctypes.CDLL) -> bool:
    """Return whether noise and mass have numpy's bits on a sample."""
    key = NoiseKey(seed=0x0123456789ABCDEF, choice=1, position=2)
    noise = np.empty(_NUM_COMPARED)
    library.dflash_noise(key.seed, key.choice, key.position, _NUM_COMPARED, noise.ctypes.data)
    expected = gumbel_noise(key, np.arange(_NUM_COMPARED))
    logits = expected.astype(np.float32)
    total = library.dflash_total_mass(logits.ctypes.data, _NUM_COMPARED)
    scores = logits.astype(np.float64) - float(logits.max())
    return noise.tobytes() == expected.tobytes() and total == int(mass_of(scores).sum())

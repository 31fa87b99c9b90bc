"""log, exp and probability mass with the same bits on every machine and in every form.

Library logarithms differ in their last bit between machines, vector widths and devices, and one
bit can flip a token. These use only ``+ - * /`` and exponent bits, each rounded once, in the order
written here. ``kernels/csrc/portable_math.h`` is the same text in C.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# ln 2 in two parts. The first has 20 zero bits at its end: times an exponent it is exact.
_LN2_HIGH: Final = float.fromhex("0x1.62e42fefp-1")
_LN2_LOW: Final = float.fromhex("0x1.473de6af278edp-34")
_LOG2_E: Final = float.fromhex("0x1.71547652b82fep+0")
_SQRT_HALF_BITS: Final = np.int64(0x3FE6A09E667F3BCD)
# With s = f / (2 + f), log(1 + f) is 2s + 2s^3/3 + 2s^5/5 + ...; |s| < 0.172, so what follows the
# tenth term lies under the last bit.
_LOG_TERMS: Final = tuple(2.0 / n for n in range(21, 1, -2))
# Taylor's series of exp; |r| < 0.347, so what follows lies under the last bit.
_EXP_TERMS: Final = (
    *(1.0 / n for n in (6227020800.0, 479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0)),
    *(1.0 / n for n in (5040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0)),
)
_LEAST_EXPONENT: Final = -700.0

MASS_OF_LARGEST: Final = 2.0**43
"""Mass of the largest score. A vocabulary of 2**20 ids still sums within 63 bits."""


def natural_log(values: Floats) -> Floats:
    """Return the natural logarithm, under 2 units in the last place off.

    Shapes:
        values: any shape, float64, positive and not subnormal.
    """
    bits = values.view(np.int64)
    exponent = (bits - _SQRT_HALF_BITS) >> 52
    e = exponent.astype(np.float64)
    f = (bits - (exponent << 52)).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    r = np.full_like(z, _LOG_TERMS[0])
    for term in _LOG_TERMS[1:]:
        r = r * z + term
    r = r * z
    return e * _LN2_HIGH + (f - (s * (f - r) - e * _LN2_LOW))


def exponential(values: Floats) -> Floats:
    """Return e to each value, under 2 units in the last place off.

    Shapes:
        values: any shape, float64, at most 700. Under -700 counts as -700.
    """
    x = np.maximum(values, _LEAST_EXPONENT)
    k = np.rint(x * _LOG2_E)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    p = np.full_like(r, _EXP_TERMS[0])
    for term in _EXP_TERMS[1:]:
        p = p * r + term
    return p * ((k.astype(np.int64) + 1023) << 52).view(np.float64)


def mass_of(scores: Floats) -> NDArray[np.int64]:
    """Return probability masses as whole numbers, 2**43 for a score of 0.

    Whole numbers add up to the same sum in any order, so neither vector width nor thread count
    can move the boundary of a top-p set or the last bit of a log-probability.

    Shapes:
        scores: any shape, float64, none over 0.
    """
    return np.rint(exponential(scores) * MASS_OF_LARGEST).astype(np.int64)

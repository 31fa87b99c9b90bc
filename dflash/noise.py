"""Standard Gumbel noise as a pure function of seed, choice, position and token id.

``argmax(z / T + noise)`` is an exact draw from ``softmax(z / T)``. As the noise has no state, a
seeded request repeats at any load, in any batch, after preemption and on any machine.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dflash.portable_math import Floats, natural_log

Words = NDArray[np.uint32]

_ROUNDS: Final = 10
_MULTIPLIERS: Final = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS: Final = (0x9E3779B9, 0xBB67AE85)
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """What fixes the noise of every token id at one place of one sequence.

    Attributes:
        seed: 64 bits, the request's.
        choice: Index among the ``n`` choices of one HTTP request, 32 bits.
        position: Absolute position of the token to choose, 32 bits.
    """

    seed: int
    choice: int
    position: int


def philox(counters: Words, key: tuple[int, int]) -> Words:
    """Return four random words a counter: Philox 4x32 with 10 rounds.

    Shapes:
        counters: ``[n, 4]`` uint32.

    Source:
        Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
    """
    c0, c1, c2, c3 = counters.astype(np.uint64).T
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1 = (p1 >> _HALF) ^ c1 ^ np.uint64(k0), p1 & _LOW
        c2, c3 = (p0 >> _HALF) ^ c3 ^ np.uint64(k1), p0 & _LOW
        k0, k1 = (k0 + _KEY_STEPS[0]) & 0xFFFFFFFF, (k1 + _KEY_STEPS[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def noise_words(key: NoiseKey, token_ids: NDArray[np.int64]) -> Words:
    """Return the random word of each id.

    One Philox call serves four neighbouring ids. Its key is the seed (low word, high word), its
    counter is ``(id >> 2, position, choice, 0)``, and id takes word ``id & 3``.
    """
    groups, group_of_id = np.unique(token_ids >> 2, return_inverse=True)
    counters = np.zeros((groups.size, 4), dtype=np.uint32)
    counters[:, 0] = groups
    counters[:, 1] = key.position
    counters[:, 2] = key.choice
    words = philox(counters, (key.seed & 0xFFFFFFFF, key.seed >> 32))
    return words[group_of_id, token_ids & 3]


def gumbel(words: Words) -> Floats:
    """Return the Gumbel number of each word: ``-log(-log(u))``, from -3.14 to 22.88.

    ``u = (word + 1/2) / 2**32`` is exact in float64 and never 0 or 1.
    """
    uniform = (words.astype(np.float64) + 0.5) * 2.0**-32
    return -natural_log(-natural_log(uniform))


def gumbel_noise(key: NoiseKey, token_ids: NDArray[np.int64]) -> Floats:
    """Return the noise of each id at one place. Whoever draws there, draws with this.

    Shapes:
        token_ids: ``[n]`` int64, in any order.
    """
    return gumbel(noise_words(key, token_ids))

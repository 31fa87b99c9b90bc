"""The compiled noise has numpy's bits, and a build that has not is not used."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dflash.kernels import draw_library as module
from dflash.kernels.draw_library import draw_library, reproduces_numpy
from dflash.noise import NoiseKey, gumbel_noise


@pytest.fixture
def library() -> ctypes.CDLL:
    compiled = draw_library()
    if compiled is None:
        pytest.skip("no compiled kernels on this machine")
    return compiled


class OneBitOff:
    """A library whose noise differs from numpy's in the last bit of one number."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.dflash_draw = SimpleNamespace()
        self.dflash_largest = SimpleNamespace()
        self.dflash_total_mass = library.dflash_total_mass
        self._noise = library.dflash_noise

    def dflash_noise(self, *arguments: Any) -> None:
        *_, count, address = arguments
        self._noise(*arguments)
        noise = np.ctypeslib.as_array((ctypes.c_double * count).from_address(address))
        noise[-1] = np.nextafter(noise[-1], np.inf)


def test_compiled_noise_has_the_bits_of_numpy_over_random_keys(library: ctypes.CDLL):
    rng = np.random.default_rng(0)
    for vocab in (1, 3, 255, 256, 257, 49_152):
        for _ in range(4):
            seed, choice, position = (int(rng.integers(0, 2**b, dtype="u8")) for b in (63, 32, 32))
            noise = np.full(vocab, np.nan)
            library.dflash_noise(seed, choice, position, vocab, noise.ctypes.data)
            expected = gumbel_noise(NoiseKey(seed, choice, position), np.arange(vocab))
            assert noise.tobytes() == expected.tobytes(), (seed, choice, position, vocab)


def test_a_build_that_rounds_once_where_numpy_rounds_twice_is_not_used(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    fused: Any = OneBitOff(library)
    monkeypatch.setattr(module, "_SIGNATURES", {})
    monkeypatch.setattr(module, "native_library", lambda: fused)

    assert reproduces_numpy(library)
    assert not reproduces_numpy(fused)
    assert draw_library.__wrapped__() is None
    assert "round differently" in caplog.text

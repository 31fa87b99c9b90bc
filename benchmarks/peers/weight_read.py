"""The least time a decode step can take: one pass over the target's weights."""

import os
import time
from pathlib import Path

import torch
from safetensors import safe_open

_BYTES_PER_WEIGHT = 2
_PASSES = 5


class WeightRead:
    """A buffer as large as the target's weights in bfloat16, read with all CPUs."""

    def __init__(self, model_folder: Path) -> None:
        self.num_bytes = _BYTES_PER_WEIGHT * num_weights(model_folder)
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        # Ones rather than zeros, so that every page is a page of its own.
        self._buffer = torch.ones(self.num_bytes // 4, dtype=torch.float32)

    def measure_s(self) -> float:
        """Return the fastest of a few passes, seconds.

        Two forms take turns, a sum and a product with itself: which one keeps up with the memory
        depends on the machine, and a bound on the decode step must not be slack.
        """
        fastest = float("inf")
        for _ in range(_PASSES):
            for read in (self._buffer.sum, lambda: torch.dot(self._buffer, self._buffer)):
                started = time.perf_counter()
                read()
                fastest = min(fastest, time.perf_counter() - started)
        return fastest


def num_weights(model_folder: Path) -> int:
    """Return the number of weights in a folder's safetensors files; tied ones count once."""
    total = 0
    for path in model_folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - the file object is no mapping
                shape = file.get_slice(name).get_shape()
                total += torch.Size(shape).numel()
    return total

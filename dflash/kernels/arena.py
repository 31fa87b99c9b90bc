"""Memory for weights and pages in large pages of the system, where it grants them."""

import contextlib
import math
import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

_CHUNK_BYTES = 64 << 20
_ALIGNMENT = 64  # a cache line, and a vector


class Arena:
    """Hands out zeroed tensors that lie side by side.

    A decode step reads all weights and all pages once, in bulk: with pages of 4 KiB a good part
    of that time goes into looking addresses up.
    """

    def __init__(self) -> None:
        self._chunk: mmap.mmap | None = None
        self._chunks: list[mmap.mmap] = []
        self._used_bytes = 0

    def zeros(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return a zeroed tensor; the system commits its memory when it is first written."""
        num_elements = math.prod(shape)
        num_bytes = num_elements * dtype.itemsize
        if self._chunk is None or self._used_bytes + num_bytes > len(self._chunk):
            self._chunk = _mapped(max(num_bytes, _CHUNK_BYTES))
            self._chunks.append(self._chunk)
            self._used_bytes = 0
        start = self._used_bytes
        self._used_bytes += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        # The tensor keeps the mapping alive.
        flat = torch.frombuffer(self._chunk, dtype=dtype, count=num_elements, offset=start)
        return flat.view(*shape)

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a copy of a tensor that lies in the arena."""
        return self.zeros(tensor.shape, tensor.dtype).copy_(tensor)

    def release(self) -> None:
        """Give the memory back to the system; the tensors stay, and what they held is lost.

        They read as zeros until they are written again, which is also when memory is committed.
        """
        for chunk in self._chunks:
            # Where the system has no such call, the memory stays committed.
            with contextlib.suppress(AttributeError, OSError):
                chunk.madvise(mmap.MADV_DONTNEED)


def _mapped(num_bytes: int) -> mmap.mmap:
    chunk = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # Absent on some systems, refused by others: then the memory is as good, only slower.
    with contextlib.suppress(AttributeError, OSError):
        chunk.madvise(mmap.MADV_HUGEPAGE)
    return chunk

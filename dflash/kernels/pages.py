"""The memory of the KV pages and the rotary table: what both CPU forms of attention read."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dflash.kernels.arena import Arena
from dflash.program import PAGE_SIZE, AttentionShape


@dataclass(frozen=True, slots=True)
class KVPages:
    """Keys and values of every layer, by page.

    Keys are stored transposed, so that one vector holds a page's keys at one dimension.

    Attributes:
        arena: Their memory, and nothing else's; None where someone else keeps it.

    Shapes:
        keys: ``[layers, pages, kv_heads, head_dim, 16]`` in the engine's type.
        values: ``[layers, pages, kv_heads, 16, head_dim]``.
    """

    keys: Tensor
    values: Tensor
    arena: Arena | None = None

    @property
    def num_pages(self) -> int:
        """Pages there are."""
        return self.keys.shape[1]

    def release(self) -> None:
        """Give their memory back to the system; what they hold is lost."""
        if self.arena is not None:
            self.arena.release()


def allocate_pages(
    shape: AttentionShape, num_pages: int, dtype: torch.dtype, arena: Arena | None = None
) -> KVPages:
    """Return zeroed pages; the system commits their memory only when they are first written.

    Args:
        shape: Geometry.
        num_pages: Pages.
        dtype: Type of keys and values.
        arena: Where they lie; None is a new one.
    """
    head = (shape.num_layers, num_pages, shape.num_kv_heads)
    arena = arena or Arena()
    return KVPages(
        keys=arena.zeros((*head, shape.head_dim, PAGE_SIZE), dtype),
        values=arena.zeros((*head, PAGE_SIZE, shape.head_dim), dtype),
        arena=arena,
    )


@dataclass(frozen=True, slots=True)
class RotaryTable:
    """Cosine and sine of every position.

    Shapes:
        cosine, sine: ``[positions, head_dim / 2]`` float32.
    """

    cosine: Tensor
    sine: Tensor


def rotary_table(shape: AttentionShape, num_positions: int) -> RotaryTable:
    """Return the rotary table. Source: arXiv:2104.09864, half-split layout."""
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
    frequencies = 1.0 / shape.rope_theta**exponents
    angles = torch.arange(num_positions, dtype=torch.float32)[:, None] * frequencies
    return RotaryTable(angles.cos().contiguous(), angles.sin().contiguous())

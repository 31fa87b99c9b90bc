"""What lies in single slots of KV pages, to be copied and put back: the hands of a fault."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.rigs.hash_lm import HashLM
from dflash.kernels.pages import PAGE_SIZE, KVPages

Slots = NDArray[np.int64]


class SlotMemory(Protocol):
    """Slots are numbered ``page * page_size + offset``."""

    def read(self, slots: Slots) -> Sequence[object]:
        """Return a copy of what these slots hold."""
        ...

    def write(self, slots: Slots, content: Sequence[object]) -> None:
        """Put back what `read` returned for as many slots."""
        ...

    def drift(self, slots: Slots) -> None:
        """Move what later tokens see of these slots by the least there is."""
        ...


class KeyValueMemory:
    """Slots of a real target's pages."""

    def __init__(self, pages: KVPages) -> None:
        self._pages = pages

    def read(self, slots: Slots) -> tuple[Tensor, Tensor]:
        """Return keys and values, ``[slots, layers, kv_heads, head_dim]`` each."""
        page, offset = _places(slots)
        return self._pages.keys[:, page, :, :, offset], self._pages.values[:, page, :, offset]

    def write(self, slots: Slots, content: tuple[Tensor, Tensor]) -> None:
        """Put keys and values back."""
        page, offset = _places(slots)
        self._pages.keys[:, page, :, :, offset] = content[0]
        self._pages.values[:, page, :, offset] = content[1]

    def drift(self, slots: Slots) -> None:
        """Move every key of these slots away from 0 by one unit in the last place."""
        keys, values = self.read(slots)
        whole = torch.int16 if keys.element_size() == 2 else torch.int32
        self.write(slots, ((keys.view(whole) + 1).view(keys.dtype), values))


class HashMemory:
    """Slots of a `HashLM`."""

    def __init__(self, model: HashLM) -> None:
        self._fields = (model._positions, model._tokens, model._states, model._is_written)

    def read(self, slots: Slots) -> tuple[np.ndarray, ...]:
        """Return position, id, state, and whether they were written."""
        return tuple(field[slots] for field in self._fields)

    def write(self, slots: Slots, content: tuple[np.ndarray, ...]) -> None:
        """Put them back."""
        for field, values in zip(self._fields, content, strict=True):
            field[slots] = values

    def drift(self, slots: Slots) -> None:
        """Move every state of these slots by one."""
        positions, tokens, states, is_written = self.read(slots)
        self.write(slots, (positions, tokens, states + np.uint64(1), is_written))


def _places(slots: Slots) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(slots // PAGE_SIZE), torch.from_numpy(slots % PAGE_SIZE)

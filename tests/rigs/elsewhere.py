"""A device other than the CPU, on a machine that has none: right numbers under another label."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only

ELSEWHERE = torch.device("meta")
# Copies go between devices; nothing else does.
_CROSSING = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class Away(Tensor):
    """A tensor that says it is elsewhere; its numbers are a tensor of the CPU's."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "Away":
        away = Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=ELSEWHERE,
        )
        away.held = held
        return away

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} outside of `Elsewhere`")


class Elsewhere(TorchDispatchMode):
    """While entered, `ELSEWHERE` is a device: it computes, and refuses what the CPU holds.

    Only single numbers may come from the CPU, as on a real device.

    Attributes:
        computed: What has run there, by name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.computed: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        any_away = any(isinstance(tensor, Away) for tensor in tensors)
        if any_away and func not in _CROSSING:
            self.computed.add(str(func))
            strays = [t.shape for t in tensors if not isinstance(t, Away) and t.dim() > 0]
            assert not strays, f"{func} meets tensors of the CPU, of shapes {strays}"
        device = kwargs.get("device")
        out = _on_cpu(func, args, kwargs if device is None else {**kwargs, "device": "cpu"})
        if any_away if device is None else device == ELSEWHERE:
            out = tree_map_only(Tensor, Away, out)
        return return_and_correct_aliasing(func, args, kwargs, out) if any_away else out


def _on_cpu(func: Callable, args: Any, kwargs: Any) -> Any:
    args, kwargs = tree_map_only(Away, lambda tensor: tensor.held, (args, kwargs))
    return func(*args, **kwargs)

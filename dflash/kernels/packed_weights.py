"""The weights of compiled programs, each packed once however many programs name it."""

from collections.abc import Callable

import torch
from torch import Tensor

from dflash.kernels.arena import Arena
from dflash.kernels.packing import interleave_gate, pack
from dflash.program import Convolve, Embed, Epilogue, HeadNorm, Linear, Operation, RmsNorm

_Key = tuple[str, tuple[str, ...], torch.dtype]
_Build = Callable[[list[Tensor], torch.dtype], Tensor]


class PackedWeights:
    """Weights as the compiled kernels read them, by the names that operations give them.

    A drafter borrows its target's embedding table, and often its head, under the target's names:
    it reads the target's memory. What it names beyond those is its own, whatever other drafters of
    this target name alike.
    """

    def __init__(self, lent: "PackedWeights | None" = None) -> None:
        """Start empty.

        Args:
            lent: Weights of another model, to be read where they have the name asked for.
        """
        self._lent = lent
        self._arena = Arena()
        self._packed: dict[_Key, Tensor] = {}

    def of(
        self, operation: Operation, weight: Callable[[str], Tensor], dtype: torch.dtype
    ) -> Tensor | None:
        """Return what an operation reads, or None where it has no weights.

        Args:
            operation: Names the tensors.
            weight: Returns a checkpoint tensor by name; asked only for what is not here yet.
            dtype: Type to compute in.

        Shapes:
            returns: of `Linear` as `dflash.kernels.packing.pack` has it; of all others as the
                checkpoint has it.

        Raises:
            KernelError: A width does not fit.
        """
        match operation:
            case Linear(weights=names, epilogue=Epilogue.SILU_MUL):
                key, build = ("gated", names, dtype), _gated
            case Linear(weights=names):
                key, build = ("matrix", names, dtype), pack
            case Embed(weight=name) | RmsNorm(weight=name) | HeadNorm(weight=name):
                key, build = ("plain", (name,), dtype), _plain
            case Convolve(base=name):
                key, build = ("plain", (name,), dtype), _plain
            case _:
                return None
        return self._kept(key, build, weight)

    def table(self, name: str, weight: Callable[[str], Tensor], dtype: torch.dtype) -> Tensor:
        """Return the table of `Embed` operations of this name; arguments are those of `of`."""
        return self._kept(("plain", (name,), dtype), _plain, weight)

    def _kept(self, key: _Key, build: _Build, weight: Callable[[str], Tensor]) -> Tensor:
        if self._lent is not None and key in self._lent._packed:
            return self._lent._packed[key]
        if key not in self._packed:
            self._packed[key] = self._arena.copy(build([weight(name) for name in key[1]], key[2]))
        return self._packed[key]


def _gated(matrices: list[Tensor], dtype: torch.dtype) -> Tensor:
    gate, up = matrices
    return pack([interleave_gate(gate, up)], dtype)


def _plain(tensors: list[Tensor], dtype: torch.dtype) -> Tensor:
    return tensors[0].to(dtype)

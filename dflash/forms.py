"""The forms in which this machine can run programs: compiled kernels, or torch's own."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from dflash.kernels.native import NativeExecutor
from dflash.kernels.packed_weights import PackedWeights
from dflash.kernels.pages import KVPages, RotaryTable
from dflash.kernels.torch_executor import TorchExecutor
from dflash.kernels.torch_forms import AttentionForm, LinearForm
from dflash.program import Program
from dflash.runner import Executor


@dataclass(frozen=True, slots=True)
class Parts:
    """What every form of running a program is made from.

    Attributes:
        program: The forward.
        weight: Returns a tensor by the name that the program gives it.
        pages: Keys and values, read and written in place.
        rotary: Covers every position a sequence can have.
    """

    program: Program
    weight: Callable[[str], Tensor]
    pages: KVPages
    rotary: RotaryTable


class Form(Protocol):
    """One form; target and drafter run in the same."""

    def for_drafter(self) -> "Form":
        """Return the form for one drafter: it shares what it borrows, and keeps its own apart."""
        ...

    def executor(self, parts: Parts) -> Executor:
        """Return what computes a program.

        Raises:
            KernelError: This form cannot take a width of the program.
        """
        ...

    def table(self, name: str, weight: Callable[[str], Tensor], dtype: torch.dtype) -> Tensor:
        """Return the table that `Embed` operations of this name read, to be read by others too."""
        ...


@dataclass(frozen=True, slots=True)
class CompiledForm:
    """The compiled kernels; executors share the weights that their programs name alike.

    Attributes:
        library: The kernels.
        num_threads: Threads that replay a tape.
        packed: The weights.
    """

    library: ctypes.CDLL
    num_threads: int
    packed: PackedWeights = field(default_factory=PackedWeights)

    def for_drafter(self) -> "CompiledForm":
        """Return the form with a store that reads this one's weights and keeps others apart."""
        return replace(self, packed=PackedWeights(lent=self.packed))

    def executor(self, parts: Parts) -> Executor:
        """Return what computes a program on the compiled kernels."""
        return NativeExecutor(
            self.library,
            parts.program,
            parts.weight,
            parts.pages,
            parts.rotary,
            self.num_threads,
            self.packed,
        )

    def table(self, name: str, weight: Callable[[str], Tensor], dtype: torch.dtype) -> Tensor:
        """Return the table in the memory that executors share."""
        return self.packed.table(name, weight, dtype)


@dataclass(frozen=True, slots=True)
class TorchForm:
    """Plain torch operations.

    Attributes:
        linear: How products are called.
        attention: How attention is called.
    """

    linear: LinearForm
    attention: AttentionForm

    def for_drafter(self) -> "TorchForm":
        """Return the form as it is: its executors share no weights."""
        return self

    def executor(self, parts: Parts) -> Executor:
        """Return what computes a program in torch."""
        return TorchExecutor(
            parts.program, parts.weight, parts.pages, parts.rotary, self.linear, self.attention
        )

    def table(self, name: str, weight: Callable[[str], Tensor], dtype: torch.dtype) -> Tensor:
        """Return the table in the type to compute in."""
        return weight(name).to(dtype)

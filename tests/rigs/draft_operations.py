"""Programs of a few drafting operations, run by either form over the same random rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor

from dflash.batch import Batch, Run, batch_from_runs
from dflash.kernels.build import native_build
from dflash.kernels.native import NativeExecutor
from dflash.kernels.pages import KVPages, allocate_pages, rotary_table
from dflash.kernels.torch_executor import TorchExecutor
from dflash.kernels.torch_forms import FixedRows, OneQuery
from dflash.program import AttentionShape, Buffer, Features, Linear, Operation, Program

NUM_PAGES = 96
NUM_POSITIONS = 600


def shape_of(num_heads: int, num_kv_heads: int, head_dim: int) -> AttentionShape:
    return AttentionShape(num_heads, num_kv_heads, head_dim, rope_theta=1e4, num_layers=1)


def random_rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def random_pages(shape: AttentionShape, dtype: torch.dtype, seed: int = 0) -> KVPages:
    pages = allocate_pages(shape, NUM_PAGES, dtype)
    pages.keys.copy_(random_rows(*pages.keys.shape, seed=seed))
    pages.values.copy_(random_rows(*pages.values.shape, seed=seed + 1))
    return pages


@dataclass(frozen=True)
class Case:
    """Operations over the caller's rows, which ``parts`` cuts into named buffers.

    The cuts are products with rows of the identity matrix: exact in every type and form.
    """

    operations: Sequence[Operation]
    parts: Mapping[str, int]
    outputs: Mapping[str, int]
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    shape: AttentionShape = field(default_factory=lambda: shape_of(2, 1, 32))

    @property
    def width(self) -> int:
        return sum(self.parts.values())

    def program(self) -> Program:
        cuts = [Linear("rows", (f"cut {name}",), name) for name in self.parts]
        widths = {"rows": self.width} | dict(self.parts) | dict(self.outputs)
        return Program(
            operations=(Features("rows"), *cuts, *self.operations),
            buffers={name: Buffer(width) for name, width in widths.items()},
            attention=self.shape,
            outputs=tuple(self.outputs),
        )

    def weight(self, name: str) -> Tensor:
        if not name.startswith("cut "):
            return self.weights[name]
        names = list(self.parts)
        widths = list(self.parts.values())
        return torch.eye(self.width).split(widths)[names.index(name.removeprefix("cut "))]

    def native(self, pages: KVPages, num_threads: int = 1) -> NativeExecutor:
        """The compiled form; skips the test where it cannot be built, and says why."""
        build = native_build()
        if build.library is None:
            pytest.skip(f"no compiled kernels: {build.why_unavailable}")
        rotary = rotary_table(self.shape, NUM_POSITIONS)
        return NativeExecutor(
            build.library, self.program(), self.weight, pages, rotary, num_threads
        )

    def torch(self, pages: KVPages) -> TorchExecutor:
        rotary = rotary_table(self.shape, NUM_POSITIONS)
        return TorchExecutor(self.program(), self.weight, pages, rotary, FixedRows(8), OneQuery())


def blocks(
    starts: Sequence[int], tables: Sequence[Sequence[int]], size: int, rows: Tensor
) -> Batch:
    """Draft blocks of ``size`` slots after contexts of these lengths.

    Shapes:
        rows: ``[len(starts) * size, width]`` in the activation type.
    """
    runs = [Run((0,) * size, start, table, 0) for start, table in zip(starts, tables, strict=True)]
    return replace(batch_from_runs(runs), features=rows, block_size=size)


def copied(pages: KVPages) -> KVPages:
    return KVPages(pages.keys.clone(), pages.values.clone())

"""Runs a program with torch, one operation at a time: the twin other forms are tested against."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dflash.batch import Batch
from dflash.errors import KernelError
from dflash.kernels.pages import PAGE_SIZE, KVPages, RotaryTable
from dflash.kernels.torch_drafts import attended_blocks, convolved, scratch_slots
from dflash.kernels.torch_forms import AttentionForm, LinearForm
from dflash.kernels.torch_rows import rms_norm, rotate, silu
from dflash.program import (
    Attend,
    AttendBlock,
    Convolve,
    Embed,
    Epilogue,
    Features,
    HeadNorm,
    Linear,
    Operation,
    Program,
    RmsNorm,
    RotateAndStore,
    RotateAndStoreBlock,
    Rows,
    Select,
    Tap,
)
from dflash.target import TargetOutput


@dataclass(slots=True)
class _Step:
    """The state of one forward: the batch and every buffer written so far."""

    batch: Batch
    buffers: dict[str, Tensor]
    hidden: dict[int, Tensor]


class TorchExecutor:
    """A program in plain torch operations.

    How products and attention are called is the caller's choice, and decides whether a row's
    numbers depend on its own sequence alone (`dflash.kernels.torch_forms`). Everything else torch
    computes row by row.
    """

    def __init__(
        self,
        program: Program,
        weight: Callable[[str], Tensor],
        pages: KVPages,
        rotary: RotaryTable,
        linear: LinearForm,
        attention: AttentionForm,
    ) -> None:
        """Prepare the weights in the pages' type."""
        dtype = pages.keys.dtype
        self._program = program
        self._pages = pages
        self._rotary = rotary
        self._linear = linear
        self._attention = attention
        self._tables: dict[str, Tensor] = {}
        self._matrices: Mapping[str, Tensor] = {
            name: linear.prepared(weight(name).to(dtype))
            for operation in program.operations
            if isinstance(operation, Linear)
            for name in operation.weights
        }
        for operation in program.operations:
            if isinstance(operation, Embed | RmsNorm | HeadNorm):
                self._tables[operation.weight] = weight(operation.weight).to(dtype)
            elif isinstance(operation, Convolve):
                self._tables[operation.base] = weight(operation.base).to(dtype)

    @property
    def form(self) -> str:
        """Names of the forms of products and attention."""
        return f"torch, products in {self._linear.name}, attention {self._attention.name}"

    def forward(self, batch: Batch, taps: tuple[int, ...] = ()) -> TargetOutput:
        """Run every operation of the program over a batch."""
        step = self._computed(batch, taps)
        return TargetOutput(self._output(self._program.logits, step), step.hidden)

    def run(self, batch: Batch) -> Mapping[str, Tensor]:
        """Run every operation of the program over a batch; return its outputs by name."""
        step = self._computed(batch, ())
        return {name: self._output(name, step) for name in self._program.outputs}

    def _computed(self, batch: Batch, taps: tuple[int, ...]) -> _Step:
        step = _Step(batch, {}, {})
        for operation in self._program.operations:
            if isinstance(operation, Tap):
                if operation.layer in taps:
                    step.hidden[operation.layer] = step.buffers[operation.src].clone()
            elif not self._is_empty(operation, batch):
                self._run(operation, step)
        return step

    def _output(self, name: str, step: _Step) -> Tensor:
        """Return a buffer at the end; it was never written where no row is wanted."""
        return step.buffers.get(name, torch.empty(0, self._program.buffers[name].width))

    def _is_empty(self, operation: Operation, batch: Batch) -> bool:
        dst = getattr(operation, "dst", None)
        return (
            dst is not None
            and self._program.buffers[dst].rows is Rows.LOGITS
            and batch.logit_rows.shape[0] == 0
        )

    def _run(self, operation: Operation, step: _Step) -> None:
        buffers, batch = step.buffers, step.batch
        match operation:
            case Embed(weight=name, dst=dst):
                buffers[dst] = self._tables[name][batch.token_ids]
            case RmsNorm(src=src, weight=name, dst=dst, eps=eps):
                buffers[dst] = rms_norm(buffers[src], self._tables[name], eps)
            case Linear():
                self._multiply(operation, buffers)
            case RotateAndStore(qkv=qkv, layer=layer):
                self._rotate_and_store(buffers[qkv], layer, batch, _own_slots(batch))
            case Attend(qkv=qkv, dst=dst, layer=layer):
                keys, values = self._pages.keys[layer], self._pages.values[layer]
                queries = self._queries(buffers[qkv])
                attended = self._attention.attended(operation, queries, keys, values, batch)
                buffers[dst] = attended.to(buffers[qkv].dtype)
            case Select(src=src, dst=dst):
                buffers[dst] = buffers[src][batch.logit_rows.long()]
            case _:
                self._run_draft(operation, step)

    def _run_draft(self, operation: Operation, step: _Step) -> None:
        """Run an operation that only drafters have."""
        buffers, batch = step.buffers, step.batch
        match operation:
            case Features(dst=dst):
                if batch.features is None:
                    raise KernelError("the program reads features, but the batch has none")
                buffers[dst] = batch.features
            case HeadNorm(heads=name, weight=weight, first=first, count=count, eps=eps):
                parts = buffers[name].unflatten(1, (-1, self._tables[weight].shape[0]))
                heads = parts[:, first : first + count]
                heads.copy_(rms_norm(heads, self._tables[weight], eps))
            case RotateAndStoreBlock(qkv=qkv, layer=layer):
                slots = scratch_slots(batch, self._pages.num_pages)
                self._rotate_and_store(buffers[qkv], layer, batch, slots)
            case AttendBlock(qkv=qkv, dst=dst, layer=layer):
                keys, values = self._pages.keys[layer], self._pages.values[layer]
                queries = self._queries(buffers[qkv])
                attended = attended_blocks(operation, queries, keys, values, batch)
                buffers[dst] = attended.to(buffers[qkv].dtype)
            case Convolve():
                self._convolve(operation, buffers, batch.block_size)
            case _:
                raise TypeError(f"unknown operation {operation!r}")

    def _multiply(self, operation: Linear, buffers: dict[str, Tensor]) -> None:
        rows = buffers[operation.src]
        products = [self._linear.product(rows, self._matrices[n]) for n in operation.weights]
        match operation.epilogue:
            case Epilogue.STORE:
                buffers[operation.dst] = torch.cat(products, dim=-1)
            case Epilogue.ADD:
                buffers[operation.dst] = buffers[operation.dst] + products[0]
            case Epilogue.SILU_MUL:
                buffers[operation.dst] = silu(products[0]) * products[1]
            case Epilogue.FLOAT32:
                buffers[operation.dst] = products[0].float()

    def _convolve(self, operation: Convolve, buffers: dict[str, Tensor], block_size: int) -> None:
        rows = buffers[operation.src]
        kernels = buffers[operation.kernel].chunk(2, dim=-1)[operation.side]
        base = self._tables[operation.base][operation.side]
        out = convolved(rows, kernels, base, block_size)
        if operation.epilogue is Epilogue.ADD:
            out = buffers[operation.dst].float() + out
        buffers[operation.dst] = out.to(rows.dtype)

    def _rotate_and_store(
        self, qkv: Tensor, layer: int, batch: Batch, slots: tuple[Tensor, Tensor]
    ) -> None:
        heads = self._heads(qkv)
        first = self._program.attention.num_heads
        rotated = first + self._program.attention.num_kv_heads
        positions = batch.positions.long()
        heads[:, :rotated] = rotate(
            heads[:, :rotated], self._rotary.cosine[positions], self._rotary.sine[positions]
        )
        pages, slot = slots
        self._pages.keys[layer][pages, :, :, slot] = heads[:, first:rotated]
        self._pages.values[layer][pages, :, slot] = heads[:, rotated:]

    def _heads(self, rows: Tensor) -> Tensor:
        return rows.view(rows.shape[0], -1, self._program.attention.head_dim)

    def _queries(self, qkv: Tensor) -> Tensor:
        return self._heads(qkv)[:, : self._program.attention.num_heads]


def _own_slots(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the page and the slot in it of each row of a batch, in its own sequence's pages."""
    positions = batch.positions.long()
    pages = batch.page_tables[batch.run_of_token.long(), positions // PAGE_SIZE].long()
    return pages, positions % PAGE_SIZE

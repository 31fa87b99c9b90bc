"""Runs a program with torch, one operation at a time: the twin other forms are tested against."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dflash.batch import Batch
from dflash.kernels.pages import PAGE_SIZE, KVPages, RotaryTable
from dflash.kernels.torch_forms import AttentionForm, LinearForm
from dflash.program import (
    Attend,
    Embed,
    Epilogue,
    Linear,
    Operation,
    Program,
    RmsNorm,
    RotateAndStore,
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
            if isinstance(operation, Embed | RmsNorm):
                self._tables[operation.weight] = weight(operation.weight).to(dtype)

    @property
    def form(self) -> str:
        """Names of the forms of products and attention."""
        return f"torch, products in {self._linear.name}, attention {self._attention.name}"

    def forward(self, batch: Batch, taps: tuple[int, ...] = ()) -> TargetOutput:
        """Run every operation of the program over a batch."""
        step = _Step(batch, {}, {})
        for operation in self._program.operations:
            if isinstance(operation, Tap):
                if operation.layer in taps:
                    step.hidden[operation.layer] = step.buffers[operation.src].clone()
            elif not self._is_empty(operation, batch):
                self._run(operation, step)
        empty = torch.empty(0, self._program.buffers[self._program.logits].width)
        return TargetOutput(step.buffers.get(self._program.logits, empty), step.hidden)

    def _is_empty(self, operation: Operation, batch: Batch) -> bool:
        dst = getattr(operation, "dst", None)
        return (
            dst is not None
            and self._program.buffers[dst].rows is Rows.LOGITS
            and batch.logit_rows.shape[0] == 0
        )

    def _run(self, operation: Operation, step: _Step) -> None:
        buffers = step.buffers
        match operation:
            case Embed(weight=name, dst=dst):
                buffers[dst] = self._tables[name][step.batch.token_ids]
            case RmsNorm(src=src, weight=name, dst=dst, eps=eps):
                buffers[dst] = rms_norm(buffers[src], self._tables[name], eps)
            case Linear():
                self._multiply(operation, buffers)
            case RotateAndStore(qkv=qkv, layer=layer):
                self._rotate_and_store(buffers[qkv], layer, step.batch)
            case Attend(qkv=qkv, dst=dst, layer=layer):
                buffers[dst] = self._attend(buffers[qkv], layer, step.batch)
            case Select(src=src, dst=dst):
                buffers[dst] = buffers[src][step.batch.logit_rows.long()]
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

    def _rotate_and_store(self, qkv: Tensor, layer: int, batch: Batch) -> None:
        shape = self._program.attention
        heads = qkv.view(qkv.shape[0], -1, shape.head_dim)
        rotated = shape.num_heads + shape.num_kv_heads
        positions = batch.positions.long()
        heads[:, :rotated] = rotate(
            heads[:, :rotated], self._rotary.cosine[positions], self._rotary.sine[positions]
        )
        pages = batch.page_tables[batch.run_of_token.long(), positions // PAGE_SIZE].long()
        slots = positions % PAGE_SIZE
        self._pages.keys[layer][pages, :, :, slots] = heads[:, shape.num_heads : rotated]
        self._pages.values[layer][pages, :, slots] = heads[:, rotated:]

    def _attend(self, qkv: Tensor, layer: int, batch: Batch) -> Tensor:
        shape = self._program.attention
        queries = qkv.view(qkv.shape[0], -1, shape.head_dim)[:, : shape.num_heads]
        keys, values = self._pages.keys[layer], self._pages.values[layer]
        return self._attention.attended(queries, keys, values, batch).to(qkv.dtype)


def rms_norm(rows: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the normed rows. Source: arXiv:1910.07467."""
    wide = rows.float()
    scale = 1.0 / (wide.square().mean(dim=-1, keepdim=True) + eps).sqrt()
    return (wide * scale).to(rows.dtype) * weight


def silu(x: Tensor) -> Tensor:
    """Return ``x * sigmoid(x)`` in float32, rounded once.

    Written with ``exp``: torch's own rounds an element otherwise in a vector's tail.
    """
    wide = x.float()
    return (wide / (1.0 + torch.exp(-wide))).to(x.dtype)


def rotate(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Return heads with rotary positions applied.

    Shapes:
        heads: ``[rows, heads, head_dim]``.
        cosine, sine: ``[rows, head_dim / 2]`` float32.
    """
    first, second = heads.float().chunk(2, dim=-1)
    c, s = cosine[:, None], sine[:, None]
    return torch.cat([first * c - second * s, second * c + first * s], dim=-1).to(heads.dtype)

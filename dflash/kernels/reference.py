"""Runs a program with torch, one operation at a time: the twin every other form is tested against.

`LinearForm` says how matrix products are called. A library's product may round a row otherwise when
other rows are computed beside it; calling it with one fixed number of rows takes that away.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from dflash.batch import Batch
from dflash.kernels.pages import PAGE_SIZE, KVPages, RotaryTable
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


@dataclass(frozen=True, slots=True)
class LinearForm:
    """How many rows each matrix product is called with.

    Attributes:
        rows_per_call: Always exactly this many, padded with zero rows; None means as they come.
    """

    rows_per_call: int | None

    @property
    def name(self) -> str:
        """Name for logs and reports."""
        return "any rows" if self.rows_per_call is None else f"tiles of {self.rows_per_call} rows"


@dataclass(slots=True)
class _Step:
    """The state of one forward: the batch and every buffer written so far."""

    batch: Batch
    buffers: dict[str, Tensor]
    hidden: dict[int, Tensor]


class ReferenceExecutor:
    """A program in plain torch operations.

    With a fixed `LinearForm` a row's numbers depend on its own sequence alone wherever torch
    computes row by row: attention is one query a call, over exactly that query's keys.
    """

    def __init__(
        self,
        program: Program,
        weight: Callable[[str], Tensor],
        pages: KVPages,
        rotary: RotaryTable,
        linear_form: LinearForm,
    ) -> None:
        """Take the weights as they are, in the pages' type."""
        self._program = program
        self._pages = pages
        self._rotary = rotary
        self._linear_form = linear_form
        self._weights: Mapping[str, Tensor] = {
            name: weight(name).to(pages.keys.dtype)
            for operation in program.operations
            for name in _weight_names(operation)
        }

    @property
    def form(self) -> str:
        """Name of the form that computes the products."""
        return f"torch, {self._linear_form.name}"

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
                buffers[dst] = self._weights[name][step.batch.token_ids]
            case RmsNorm(src=src, weight=name, dst=dst, eps=eps):
                buffers[dst] = rms_norm(buffers[src], self._weights[name], eps)
            case Linear():
                self._linear(operation, buffers)
            case RotateAndStore(qkv=qkv, layer=layer):
                self._rotate_and_store(buffers[qkv], layer, step.batch)
            case Attend(qkv=qkv, dst=dst, layer=layer):
                buffers[dst] = self._attend(buffers[qkv], layer, step.batch)
            case Select(src=src, dst=dst):
                buffers[dst] = buffers[src][step.batch.logit_rows.long()]
            case _:
                raise TypeError(f"unknown operation {operation!r}")

    def _linear(self, operation: Linear, buffers: dict[str, Tensor]) -> None:
        rows = buffers[operation.src]
        products = [self._product(rows, self._weights[name]) for name in operation.weights]
        match operation.epilogue:
            case Epilogue.STORE:
                buffers[operation.dst] = torch.cat(products, dim=-1)
            case Epilogue.ADD:
                buffers[operation.dst] = buffers[operation.dst] + products[0]
            case Epilogue.SILU_MUL:
                buffers[operation.dst] = silu(products[0]) * products[1]
            case Epilogue.FLOAT32:
                buffers[operation.dst] = products[0].float()

    def _product(self, rows: Tensor, matrix: Tensor) -> Tensor:
        tile = self._linear_form.rows_per_call
        if tile is None:
            return functional.linear(rows, matrix)
        padding = -rows.shape[0] % tile
        padded = functional.pad(rows, (0, 0, 0, padding)) if padding else rows
        tiles = [functional.linear(part, matrix) for part in padded.split(tile)]
        return torch.cat(tiles)[: rows.shape[0]]

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
        """Return ``[num_tokens, heads * head_dim]``, one query row a call."""
        shape = self._program.attention
        queries = qkv.view(qkv.shape[0], -1, shape.head_dim)[:, : shape.num_heads]
        attended = torch.empty(qkv.shape[0], shape.num_heads * shape.head_dim, dtype=qkv.dtype)
        for row, position in enumerate(batch.positions.tolist()):
            table = batch.page_tables[batch.run_of_token[row], : position // PAGE_SIZE + 1].long()
            keys = self._pages.keys[layer][table].float().permute(1, 2, 0, 3).flatten(2)
            values = self._pages.values[layer][table].float().transpose(0, 1).flatten(1, 2)
            attended[row] = attend_one(
                queries[row].float(), keys[..., : position + 1], values[:, : position + 1]
            ).to(qkv.dtype)
        return attended


def _weight_names(operation: Operation) -> tuple[str, ...]:
    match operation:
        case Embed(weight=name) | RmsNorm(weight=name):
            return (name,)
        case Linear(weights=names):
            return names
        case _:
            return ()


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


def attend_one(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return one token's attention output, flat.

    Shapes:
        query: ``[heads, head_dim]`` float32.
        keys: ``[kv_heads, head_dim, length]`` float32.
        values: ``[kv_heads, length, head_dim]`` float32.
        returns: ``[heads * head_dim]`` float32.
    """
    kv_heads, head_dim, _ = keys.shape
    grouped = query.view(kv_heads, -1, head_dim) * head_dim**-0.5
    return (torch.softmax(grouped @ keys, dim=-1) @ values).flatten()

"""A program as the compiled kernels read it: one record an operation, mirroring csrc/tape.h."""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dflash.batch import Batch
from dflash.errors import KernelError
from dflash.kernels.packing import BLOCK
from dflash.kernels.pages import KVPages, RotaryTable
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

_EPILOGUES = {
    Epilogue.STORE: 0,
    Epilogue.ADD: 1,
    Epilogue.SILU_MUL: 2,
    Epilogue.FLOAT32: 3,
}
_KINDS = {
    Embed: 0,
    RmsNorm: 1,
    Linear: 2,
    RotateAndStore: 3,
    Attend: 4,
    Select: 5,
    Tap: 6,
    Features: 7,
    HeadNorm: 8,
    RotateAndStoreBlock: 9,
    AttendBlock: 10,
    Convolve: 11,
}
_EVERY_POSITION = 1 << 32  # a window that no position lies outside of


class Op(ctypes.Structure):
    """One recorded operation; mirrors ``Op`` in csrc/tape.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("kind", "rows", "dtype", "epilogue")),
        *((name, ctypes.c_void_p) for name in ("src", "kernel", "weight", "dst")),
        *((name, ctypes.c_void_p) for name in ("keys", "values", "cosine", "sine")),
        *((name, ctypes.c_int64) for name in ("src_stride", "kernel_stride", "dst_stride")),
        *((name, ctypes.c_int64) for name in ("in_width", "out_width", "num_pages")),
        *((name, ctypes.c_int64) for name in ("first", "window")),
        *((name, ctypes.c_int32) for name in ("num_heads", "num_kv_heads", "head_dim")),
        *((name, ctypes.c_int32) for name in ("is_causal", "enabled")),
        *((name, ctypes.c_float) for name in ("eps", "scale")),
    )


class Step(ctypes.Structure):
    """What changes from step to step; mirrors ``Step`` in csrc/tape.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("token_ids", "positions", "run_of_token")),
        *((name, ctypes.c_void_p) for name in ("page_tables", "logit_rows", "features")),
        *((name, ctypes.c_int64) for name in ("num_tokens", "num_runs", "max_pages", "num_logits")),
        *((name, ctypes.c_int64) for name in ("features_stride", "block_size")),
    )


def check_layout(library: ctypes.CDLL) -> None:
    """Refuse a library whose records are laid out otherwise.

    Raises:
        KernelError: The library was built from other sources.
    """
    sizes = library.dflash_op_size(), library.dflash_step_size()
    if sizes != (ctypes.sizeof(Op), ctypes.sizeof(Step)):
        raise KernelError("the compiled kernels do not match this version; remove their cache")


def step_of(batch: Batch) -> Step:
    """Return a batch's addresses and counts; the batch must outlive it."""
    features = batch.features
    return Step(
        batch.token_ids.data_ptr(),
        batch.positions.data_ptr(),
        batch.run_of_token.data_ptr(),
        batch.page_tables.data_ptr(),
        batch.logit_rows.data_ptr(),
        None if features is None else features.data_ptr(),
        batch.num_tokens,
        batch.num_runs,
        batch.page_tables.shape[1],
        batch.logit_rows.shape[0],
        0 if features is None else features.stride(0),
        batch.block_size,
    )


@dataclass(frozen=True, slots=True)
class Recorder:
    """Writes operations down with the addresses of what they touch.

    Attributes:
        program: Whose operations.
        buffers: Memory of each of its buffers.
        pages: KV pages.
        rotary: Rotary table.
    """

    program: Program
    buffers: Mapping[str, Tensor]
    pages: KVPages
    rotary: RotaryTable

    def recorded(self, operation: Operation, weight: Tensor | None) -> Op:
        """Return the record of an operation; that of a `Tap` is off and has no destination."""
        op = Op(
            kind=_KINDS[type(operation)],
            dtype=int(self.pages.keys.dtype == torch.bfloat16),
            enabled=not isinstance(operation, Tap),
            weight=None if weight is None else weight.data_ptr(),
        )
        self._set_rows(op, operation)
        if weight is not None:
            self._set_weight(op, operation, weight)
        if isinstance(operation, RotateAndStore | RotateAndStoreBlock | Attend | AttendBlock):
            self._set_attention(op, operation)
        return op

    def _set_rows(self, op: Op, operation: Operation) -> None:
        match operation:
            case Embed(dst=dst) | Features(dst=dst):  # from a table, from the step
                source, destination = None, dst
                op.in_width = self.program.buffers[dst].width
            case RotateAndStore(qkv=rows) | RotateAndStoreBlock(qkv=rows) | HeadNorm(heads=rows):
                source, destination = rows, rows
            case Attend(qkv=src, dst=dst) | AttendBlock(qkv=src, dst=dst):
                source, destination = src, dst
            case Tap(src=src):
                source, destination = src, None
            case _:
                source, destination = operation.src, operation.dst
        if source is not None:
            rows = self.buffers[source]
            op.src, op.src_stride = rows.data_ptr(), rows.shape[1]
            op.in_width = self.program.buffers[source].width
        if destination is not None:
            rows = self.buffers[destination]
            op.dst, op.dst_stride = rows.data_ptr(), rows.shape[1]
            op.rows = int(self.program.buffers[destination].rows is Rows.LOGITS)

    def _set_weight(self, op: Op, operation: Operation, weight: Tensor) -> None:
        match operation:
            case Embed():
                op.src, op.src_stride = weight.data_ptr(), weight.shape[1]
            case RmsNorm(eps=eps):
                op.eps = eps
            case HeadNorm(first=first, count=count, eps=eps):
                op.eps, op.num_heads, op.head_dim = eps, count, weight.shape[0]
                # Start at the first head to norm: a weight has the size of a head.
                op.src = op.dst = op.dst + first * weight.nbytes
            case Linear(epilogue=epilogue):
                op.epilogue = _EPILOGUES[epilogue]
                op.out_width = weight.shape[0] * BLOCK
            case Convolve():
                self._set_kernel(op, operation, weight)

    def _set_kernel(self, op: Op, operation: Convolve, base: Tensor) -> None:
        rows = self.buffers[operation.kernel]
        side_width = self.program.buffers[operation.kernel].width // 2
        op.kernel = rows[:, operation.side * side_width :].data_ptr()
        op.kernel_stride = rows.shape[1]
        op.weight = base[operation.side].data_ptr()
        op.epilogue = _EPILOGUES[operation.epilogue]

    def _set_attention(
        self, op: Op, operation: RotateAndStore | RotateAndStoreBlock | Attend | AttendBlock
    ) -> None:
        shape = self.program.attention
        op.keys = self.pages.keys[operation.layer].data_ptr()
        op.values = self.pages.values[operation.layer].data_ptr()
        op.cosine = self.rotary.cosine.data_ptr()
        op.sine = self.rotary.sine.data_ptr()
        op.num_heads, op.num_kv_heads = shape.num_heads, shape.num_kv_heads
        op.head_dim, op.scale = shape.head_dim, shape.head_dim**-0.5
        op.num_pages = self.pages.num_pages
        if isinstance(operation, Attend | AttendBlock):
            op.window = _EVERY_POSITION if operation.window is None else operation.window
        if isinstance(operation, Attend):
            op.first = operation.first
        if isinstance(operation, AttendBlock):
            op.is_causal = operation.is_causal

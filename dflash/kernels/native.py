"""Runs a program on the compiled CPU kernels: recorded once as a tape, replayed every step."""

import ctypes
from collections.abc import Callable

import torch
from torch import Tensor

from dflash.batch import Batch
from dflash.errors import KernelError
from dflash.kernels.arena import Arena
from dflash.kernels.packing import BLOCK, interleave_gate, pack, padded_inputs, padded_outputs
from dflash.kernels.pages import KVPages, RotaryTable
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

_ROW_GROUP = 32  # rows a matrix tile pair reads; capacities are multiples of it
_EPILOGUES = {
    Epilogue.STORE: 0,
    Epilogue.ADD: 1,
    Epilogue.SILU_MUL: 2,
    Epilogue.FLOAT32: 3,
}
_KINDS = {Embed: 0, RmsNorm: 1, Linear: 2, RotateAndStore: 3, Attend: 4, Select: 5, Tap: 6}


class _Op(ctypes.Structure):
    """One recorded operation; mirrors ``Op`` in csrc/tape.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("kind", "rows", "dtype", "epilogue")),
        *((name, ctypes.c_void_p) for name in ("src", "weight", "dst", "keys", "values")),
        *((name, ctypes.c_void_p) for name in ("cosine", "sine")),
        *((name, ctypes.c_int64) for name in ("src_stride", "dst_stride")),
        *((name, ctypes.c_int64) for name in ("in_width", "out_width")),
        *((name, ctypes.c_int32) for name in ("num_heads", "num_kv_heads", "head_dim", "enabled")),
        *((name, ctypes.c_float) for name in ("eps", "scale")),
    )


class _Step(ctypes.Structure):
    """What changes from step to step; mirrors ``Step`` in csrc/tape.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("token_ids", "positions", "run_of_token")),
        *((name, ctypes.c_void_p) for name in ("page_tables", "logit_rows")),
        *((name, ctypes.c_int64) for name in ("num_tokens", "num_runs", "max_pages", "num_logits")),
    )


class NativeExecutor:
    """A program on the compiled kernels. Exact by construction (csrc/tape.h says why).

    Weights are packed once; buffers grow when a step brings more rows than any before.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        program: Program,
        weight: Callable[[str], Tensor],
        pages: KVPages,
        rotary: RotaryTable,
        num_threads: int,
    ) -> None:
        """Pack the weights and record the tape.

        Args:
            library: The compiled kernels.
            program: The model's forward.
            weight: Returns a checkpoint tensor by name.
            pages: KV pages, read and written in place.
            rotary: Covers every position a sequence can have.
            num_threads: Threads of the team that replays the tape.

        Raises:
            KernelError: The library was built from other sources, or a width does not fit.
        """
        if library.dflash_op_size() != ctypes.sizeof(_Op):
            raise KernelError("the compiled kernels do not match this version; remove their cache")
        if library.dflash_step_size() != ctypes.sizeof(_Step):
            raise KernelError("the compiled kernels do not match this version; remove their cache")
        self._library = library
        self._program = program
        self._pages = pages
        self._rotary = rotary
        self._num_threads = num_threads
        self._dtype = pages.keys.dtype
        arena = Arena()
        self._weights = [
            None if packed is None else arena.copy(packed)
            for packed in (self._packed(operation, weight) for operation in program.operations)
        ]
        self._capacity = 0
        self._buffers: dict[str, Tensor] = {}
        self._taps: dict[int, Tensor] = {}
        self._tap_index = {
            operation.layer: index
            for index, operation in enumerate(program.operations)
            if isinstance(operation, Tap)
        }
        self._tape = (_Op * len(program.operations))()

    @property
    def form(self) -> str:
        """Name of the form that computes the products: results are equal within one form."""
        if self._dtype == torch.float32:
            return "native-fp32"
        self._library.dflash_linear_form.restype = ctypes.c_char_p
        return f"native-{self._library.dflash_linear_form().decode()}"

    def forward(self, batch: Batch, taps: tuple[int, ...] = ()) -> TargetOutput:
        """Replay the tape over a batch.

        Raises:
            KernelError: The system had no memory left.
        """
        if batch.num_tokens > self._capacity:
            self._record(max(batch.num_tokens, 2 * self._capacity))
        self._enable_taps(taps)
        step = _Step(
            *(
                tensor.data_ptr()
                for tensor in (
                    batch.token_ids,
                    batch.positions,
                    batch.run_of_token,
                    batch.page_tables,
                    batch.logit_rows,
                )
            ),
            batch.num_tokens,
            batch.num_runs,
            batch.page_tables.shape[1],
            batch.logit_rows.shape[0],
        )
        status = self._library.dflash_run_tape(
            self._tape, len(self._tape), ctypes.byref(step), self._num_threads
        )
        if status != 0:
            raise KernelError("no memory to run the kernels")
        width = self._program.buffers[self._program.logits].width
        logits = self._buffers[self._program.logits][: step.num_logits, :width]
        hidden = {layer: self._taps[layer][: batch.num_tokens].clone() for layer in taps}
        return TargetOutput(logits, hidden)

    def _packed(self, operation: Operation, weight: Callable[[str], Tensor]) -> Tensor | None:
        match operation:
            case Linear(weights=names, epilogue=Epilogue.SILU_MUL):
                gate, up = (weight(name) for name in names)
                return pack([interleave_gate(gate, up)], self._dtype)
            case Linear(weights=names):
                return pack([weight(name) for name in names], self._dtype)
            case Embed(weight=name) | RmsNorm(weight=name):
                return weight(name).to(self._dtype)
            case _:
                return None

    def _record(self, num_rows: int) -> None:
        """Allocate buffers for this many rows and write their addresses on the tape."""
        self._capacity = -(-num_rows // _ROW_GROUP) * _ROW_GROUP
        self._taps = {}
        self._buffers = {
            name: torch.zeros(
                self._capacity,
                padded_inputs(padded_outputs(buffer.width)),
                dtype=torch.float32 if buffer.is_float32 else self._dtype,
            )
            for name, buffer in self._program.buffers.items()
        }
        for index, operation in enumerate(self._program.operations):
            self._tape[index] = self._recorded(operation, self._weights[index])

    def _recorded(self, operation: Operation, weight: Tensor | None) -> _Op:
        op = _Op(
            kind=_KINDS[type(operation)],
            dtype=int(self._dtype == torch.bfloat16),
            enabled=not isinstance(operation, Tap),
            weight=None if weight is None else weight.data_ptr(),
        )
        match operation:
            case Embed(dst=dst):
                self._set_source(op, weight)
                self._set_destination(op, dst)
            case RotateAndStore(qkv=qkv, layer=layer):
                self._set_destination(op, qkv)
                self._set_attention(op, layer)
            case Attend(qkv=qkv, dst=dst, layer=layer):
                self._set_source(op, self._buffers[qkv])
                self._set_destination(op, dst)
                self._set_attention(op, layer)
            case Tap(src=src):
                self._set_source(op, self._buffers[src], self._program.buffers[src].width)
            case RmsNorm(src=src, dst=dst) | Linear(src=src, dst=dst) | Select(src=src, dst=dst):
                self._set_source(op, self._buffers[src], self._program.buffers[src].width)
                self._set_destination(op, dst)
        if isinstance(operation, RmsNorm):
            op.eps = operation.eps
        if isinstance(operation, Linear) and weight is not None:
            op.epilogue = _EPILOGUES[operation.epilogue]
            op.out_width = weight.shape[0] * BLOCK
        return op

    def _set_source(self, op: _Op, rows: Tensor | None, width: int | None = None) -> None:
        if rows is not None:
            op.src, op.src_stride = rows.data_ptr(), rows.shape[1]
            op.in_width = rows.shape[1] if width is None else width

    def _set_destination(self, op: _Op, name: str) -> None:
        rows = self._buffers[name]
        op.dst, op.dst_stride = rows.data_ptr(), rows.shape[1]
        op.rows = int(self._program.buffers[name].rows is Rows.LOGITS)

    def _set_attention(self, op: _Op, layer: int) -> None:
        shape = self._program.attention
        op.keys = self._pages.keys[layer].data_ptr()
        op.values = self._pages.values[layer].data_ptr()
        op.cosine = self._rotary.cosine.data_ptr()
        op.sine = self._rotary.sine.data_ptr()
        op.num_heads, op.num_kv_heads = shape.num_heads, shape.num_kv_heads
        op.head_dim, op.scale = shape.head_dim, shape.head_dim**-0.5

    def _enable_taps(self, taps: tuple[int, ...]) -> None:
        """Switch the copies of the asked layers on and all others off."""
        for layer, index in self._tap_index.items():
            self._tape[index].enabled = layer in taps
        for layer in taps:
            if layer not in self._taps:
                op = self._tape[self._tap_index[layer]]
                self._taps[layer] = torch.zeros(self._capacity, op.in_width, dtype=self._dtype)
                op.dst, op.dst_stride = self._taps[layer].data_ptr(), op.in_width

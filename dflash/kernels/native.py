"""Runs a program on the compiled CPU kernels: recorded once as a tape, replayed every step."""

import ctypes
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from dflash.batch import Batch
from dflash.errors import KernelError
from dflash.kernels.packed_weights import PackedWeights
from dflash.kernels.packing import padded_inputs, padded_outputs
from dflash.kernels.pages import PAGE_SIZE, KVPages, RotaryTable
from dflash.kernels.tape import Op, Recorder, check_layout, step_of
from dflash.program import AttendBlock, Convolve, Features, Program, RotateAndStoreBlock, Rows, Tap
from dflash.target import TargetOutput

_ROW_GROUP = 32  # rows a matrix tile pair reads; capacities are multiples of it
_OF_BLOCKS = RotateAndStoreBlock | AttendBlock | Convolve


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
        packed: PackedWeights | None = None,
    ) -> None:
        """Pack the weights and record the tape.

        Args:
            library: The compiled kernels.
            program: The model's forward.
            weight: Returns a checkpoint tensor by name.
            pages: KV pages, read and written in place.
            rotary: Covers every position a sequence can have.
            num_threads: Threads of the team that replays the tape.
            packed: Weights shared with other executors; None keeps them to itself.

        Raises:
            KernelError: The library was built from other sources, or a width does not fit.
        """
        check_layout(library)
        self._library = library
        self._program = program
        self._pages = pages
        self._rotary = rotary
        self._num_threads = num_threads
        self._dtype = pages.keys.dtype
        store = PackedWeights() if packed is None else packed
        self._weights = [
            store.of(operation, weight, self._dtype) for operation in program.operations
        ]
        self._capacity = dict.fromkeys(Rows, 0)
        self._buffers: dict[str, Tensor] = {}
        self._taps: dict[int, Tensor] = {}
        self._tap_index = {
            operation.layer: index
            for index, operation in enumerate(program.operations)
            if isinstance(operation, Tap)
        }
        self._features_width = next(
            (
                program.buffers[operation.dst].width
                for operation in program.operations
                if isinstance(operation, Features)
            ),
            None,
        )
        self._is_of_blocks = any(isinstance(each, _OF_BLOCKS) for each in program.operations)
        self._tape = (Op * len(program.operations))()

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
            KernelError: The system had no memory left, or the batch is not of the kind that the
                program takes.
        """
        self._replay(batch, taps)
        hidden = {layer: self._taps[layer][: batch.num_tokens] for layer in taps}
        return TargetOutput(self._output(self._program.logits, batch), hidden)

    def run(self, batch: Batch) -> Mapping[str, Tensor]:
        """Replay the tape over a batch and return the program's outputs by name.

        Raises:
            KernelError: As `forward`.
        """
        self._replay(batch, ())
        return {name: self._output(name, batch) for name in self._program.outputs}

    def _replay(self, batch: Batch, taps: tuple[int, ...]) -> None:
        self._check(batch)
        rows = {Rows.TOKENS: batch.num_tokens, Rows.LOGITS: len(batch.logit_rows)}
        if any(rows[kind] > self._capacity[kind] for kind in Rows):
            self._record(rows)
        self._enable_taps(taps)
        status = self._library.dflash_run_tape(
            self._tape, len(self._tape), ctypes.byref(step_of(batch)), self._num_threads
        )
        if status != 0:
            raise KernelError("no memory to run the kernels")

    def _check(self, batch: Batch) -> None:
        """Refuse what the kernels would read past the end of, or divide by zero for."""
        if self._is_of_blocks and (
            not 0 < batch.block_size <= PAGE_SIZE
            or batch.num_tokens != batch.num_runs * batch.block_size
        ):
            raise KernelError(
                f"block_size is {batch.block_size} with {batch.num_tokens} tokens in "
                f"{batch.num_runs} runs; a draft program takes runs of 1 to {PAGE_SIZE} slots, all "
                "of block_size"
            )
        if self._features_width is not None:
            self._check_features(batch.features, (batch.num_tokens, self._features_width))

    def _check_features(self, features: Tensor | None, shape: tuple[int, int]) -> None:
        if features is None:
            raise KernelError("the program reads features, but the batch has none")
        if features.shape != shape or features.dtype != self._dtype or features.stride(1) != 1:
            raise KernelError(
                f"features are {features.dtype} {tuple(features.shape)}; the program takes "
                f"{self._dtype} {shape} with contiguous rows"
            )

    def _output(self, name: str, batch: Batch) -> Tensor:
        buffer = self._program.buffers[name]
        rows = batch.logit_rows.shape[0] if buffer.rows is Rows.LOGITS else batch.num_tokens
        return self._buffers[name][:rows, : buffer.width]

    def _record(self, rows: Mapping[Rows, int]) -> None:
        """Allocate buffers for at least these rows and write their addresses on the tape.

        They are no larger than the largest step needs, which is what memory was planned with, and
        the old ones go before the new ones come.
        """
        for kind, count in rows.items():
            grown = -(-max(1, count) // _ROW_GROUP) * _ROW_GROUP
            self._capacity[kind] = max(self._capacity[kind], grown)
        self._taps, self._buffers = {}, {}
        self._buffers = {
            name: torch.zeros(
                self._capacity[buffer.rows],
                padded_inputs(padded_outputs(buffer.width)),
                dtype=torch.float32 if buffer.is_float32 else self._dtype,
            )
            for name, buffer in self._program.buffers.items()
        }
        recorder = Recorder(self._program, self._buffers, self._pages, self._rotary)
        for index, operation in enumerate(self._program.operations):
            self._tape[index] = recorder.recorded(operation, self._weights[index])

    def _enable_taps(self, taps: tuple[int, ...]) -> None:
        """Switch the copies of the asked layers on and all others off."""
        for layer, index in self._tap_index.items():
            self._tape[index].enabled = layer in taps
        for layer in taps:
            if layer not in self._taps:
                op = self._tape[self._tap_index[layer]]
                num_rows = self._capacity[Rows.TOKENS]
                self._taps[layer] = torch.zeros(num_rows, op.in_width, dtype=self._dtype)
                op.dst, op.dst_stride = self._taps[layer].data_ptr(), op.in_width

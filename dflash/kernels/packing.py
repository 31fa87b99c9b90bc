"""Weight matrices in the order the compiled kernels read them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dflash.errors import KernelError

BLOCK = 16  # output columns of a packed block
_PAIR_BLOCK = 2 * BLOCK  # blocks are computed two at a time
_INPUT_PAD = 32  # inputs of a bfloat16 matrix tile


def padded_outputs(num_outputs: int) -> int:
    """Return the width a packed matrix writes: outputs rounded up to a pair of blocks."""
    return -(-num_outputs // _PAIR_BLOCK) * _PAIR_BLOCK


def padded_inputs(num_inputs: int) -> int:
    """Return the row stride a linear operation's input needs; the padding must be zero."""
    return -(-num_inputs // _INPUT_PAD) * _INPUT_PAD


def interleave_gate(gate: Tensor, up: Tensor) -> Tensor:
    """Return ``[2 * width, in]``: blocks of the gate's and the up-projection's outputs in turn.

    Raises:
        KernelError: The width is not a multiple of a block.
    """
    width, inputs = gate.shape
    if width % BLOCK or gate.shape != up.shape:
        raise KernelError(
            f"gate {tuple(gate.shape)} and up {tuple(up.shape)} must be alike and their outputs a "
            f"multiple of {BLOCK}"
        )
    pairs = [m.reshape(width // BLOCK, 1, BLOCK, inputs) for m in (gate, up)]
    return torch.cat(pairs, dim=1).reshape(2 * width, inputs)


def pack(matrices: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Stack matrices over their outputs and reorder them for `csrc/linear.c`.

    Shapes:
        matrices: Each ``[out, in]``.
        returns: float32 ``[blocks, in, 16]``; bfloat16 ``[blocks, padded in / 2, 16, 2]``.
    """
    stacked = torch.cat([m.to(dtype) for m in matrices])
    outputs, inputs = stacked.shape
    pad_inputs = padded_inputs(inputs) - inputs if dtype == torch.bfloat16 else 0
    pad_outputs = padded_outputs(outputs) - outputs
    if pad_inputs or pad_outputs:
        stacked = torch.nn.functional.pad(stacked, (0, pad_inputs, 0, pad_outputs))
    blocks = stacked.shape[0] // BLOCK
    if dtype == torch.bfloat16:
        return stacked.reshape(blocks, BLOCK, -1, 2).transpose(1, 2).contiguous()
    return stacked.reshape(blocks, BLOCK, -1).transpose(1, 2).contiguous()

"""The dynamic convolution of DFlash 2: each slot mixes in the slots before it, in its block."""

import torch
from torch import Tensor, nn

from dflash.train.layers import Linear
from dflash.train.shape import DrafterShape

_SIDES = 2


class DynamicConvolution(nn.Module):
    """A causal convolution around one sublayer, with kernels made from the sublayer's input.

    It starts as the identity: the base kernel passes the current slot on, the dynamic part is 0.
    """

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.taps, self.group_size = shape.conv_kernel_size, shape.conv_group_size
        base = torch.zeros(_SIDES, self.taps, shape.hidden_size)
        base[:, 0] = 1.0
        self.base_kernel = nn.Parameter(base)
        groups = shape.hidden_size // self.group_size
        self.kernel_projection = Linear(shape.hidden_size, _SIDES * self.taps * groups)
        nn.init.zeros_(self.kernel_projection.weight)

    def kernels(self, x: Tensor) -> Tensor:
        """Return the kernels of both sides, ``[2, taps, blocks, slots, hidden]``.

        Args:
            x: The sublayer's normalised input, ``[blocks, slots, hidden]``.
        """
        dynamic = self.kernel_projection(x).unflatten(-1, (_SIDES, self.taps, -1))
        dynamic = dynamic.repeat_interleave(self.group_size, dim=-1).permute(2, 3, 0, 1, 4)
        return dynamic + self.base_kernel.to(x.dtype)[:, :, None, None, :]


def convolve(x: Tensor, kernel: Tensor) -> Tensor:
    """Return each slot mixed with those before it in its block; there is nothing before slot 0.

    Args:
        x: ``[blocks, slots, channels]``.
        kernel: One side's kernels, ``[taps, blocks, slots, channels]``.
    """
    mixed = kernel[0] * x
    for tap in range(1, kernel.shape[0]):
        earlier = kernel[tap][:, tap:] * x[:, :-tap]
        mixed = mixed + nn.functional.pad(earlier, (0, 0, tap, 0))
    return mixed

"""The drafter's parts that are ordinary Qwen3: norm, rotary positions, block attention, MLP."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from dflash.train.shape import DrafterShape


class RMSNorm(nn.Module):
    """Plain root mean square norm: ``w * x / rms(x)``."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` normalised over its last axis, in the type of ``x``."""
        return _Normalise.apply(x, self.eps) * self.weight.to(x.dtype)


class _Normalise(torch.autograd.Function):
    """``x / rms(x)`` in few passes over memory; the mean is summed in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True).float()
        scale = torch.rsqrt(norm.square() / x.shape[-1] + eps).to(x.dtype)
        y = x * scale
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        y, scale = ctx.saved_tensors
        (gradient,) = grad_outputs
        along = (gradient * y).mean(dim=-1, keepdim=True)
        return torch.addcmul(gradient, y, along, value=-1).mul_(scale), None


class Linear(nn.Module):
    """A product without bias: float32 weight, multiplied in the type of the input."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width_out, width_in))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x @ weight.T``, ``[..., width_out]``."""
        return functional.linear(x, self.weight.to(x.dtype))


class Rotary:
    """Rotary positions over the whole head, half-split layout.

    Args:
        head_dim: Width of a head.
        theta: Base of the frequencies.
        positions: ``[rows]``.
        dtype: Type to turn in.
    """

    def __init__(self, head_dim: int, theta: float, positions: Tensor, dtype: torch.dtype) -> None:
        wide = positions.double()
        halves = torch.arange(0, head_dim, 2, dtype=wide.dtype, device=wide.device)
        angles = wide[:, None, None] * theta ** (-halves / head_dim)
        cos, sin = angles.cos(), angles.sin()
        self._cos = torch.cat([cos, cos], dim=-1).to(dtype)
        self._sin = torch.cat([-sin, sin], dim=-1).to(dtype)

    def turn(self, x: Tensor) -> Tensor:
        """Return ``x [rows, heads, head_dim]`` turned to its positions."""
        return x * self._cos + x.roll(x.shape[-1] // 2, dims=-1) * self._sin


class Attention(nn.Module):
    """Queries of the block over the context's keys and the block's own, all of them visible."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.num_kv_heads, self.head_dim = shape.num_kv_heads, shape.head_dim
        self.window = shape.sliding_window
        self.q_proj = Linear(shape.hidden_size, shape.num_heads * shape.head_dim)
        self.k_proj = Linear(shape.hidden_size, shape.num_kv_heads * shape.head_dim)
        self.v_proj = Linear(shape.hidden_size, shape.num_kv_heads * shape.head_dim)
        self.o_proj = Linear(shape.num_heads * shape.head_dim, shape.hidden_size)
        self.q_norm = RMSNorm(shape.head_dim, shape.rms_norm_eps)
        self.k_norm = RMSNorm(shape.head_dim, shape.rms_norm_eps)

    def keys_values(self, x: Tensor, rotary: Rotary) -> tuple[Tensor, Tensor]:
        """Return keys and values ``[rows, kv_heads, head_dim]`` of ``x [rows, hidden]``."""
        keys = self.k_norm(self.k_proj(x).unflatten(-1, (-1, self.head_dim)))
        return rotary.turn(keys), self.v_proj(x).unflatten(-1, (-1, self.head_dim))

    def queries(self, x: Tensor, rotary: Rotary) -> Tensor:
        """Return queries ``[rows, heads, head_dim]`` of ``x [rows, hidden]``."""
        return rotary.turn(self.q_norm(self.q_proj(x).unflatten(-1, (-1, self.head_dim))))


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.gate_proj = Linear(shape.hidden_size, shape.intermediate_size)
        self.up_proj = Linear(shape.hidden_size, shape.intermediate_size)
        self.down_proj = Linear(shape.intermediate_size, shape.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[rows, hidden]`` for ``[rows, hidden]``."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


def attend(
    queries: Tensor,
    context: tuple[Tensor, Tensor],
    block: tuple[Tensor, Tensor],
    anchors: Tensor,
    window: int,
) -> Tensor:
    """Return what the blocks of one sequence attend to.

    A block sees the context strictly before its anchor, and the whole of itself. The window is
    measured from the anchor for all of its slots: in service the last slot sees a few keys less.

    Args:
        queries: ``[blocks, slots, heads, head_dim]``.
        context: Keys and values of the sequence from its first token, each
            ``[context, kv_heads, head_dim]``.
        block: Keys and values of the blocks, each ``[blocks, slots, kv_heads, head_dim]``.
        anchors: Position of each block's anchor, ``[blocks]``.
        window: Keys must be nearer to the anchor than this many positions.

    Returns:
        ``[blocks, slots, heads * head_dim]``.
    """
    num_blocks, slots, heads, head_dim = queries.shape
    context_keys, context_values = context
    block_keys, block_values = block
    kv_heads, length = context_keys.shape[1], context_keys.shape[0]
    # The query heads that share a key head become more rows of the same product.
    rows = queries.unflatten(2, (kv_heads, -1)).permute(2, 0, 1, 3, 4)
    rows = (rows * head_dim**-0.5).reshape(kv_heads, num_blocks, -1, head_dim)
    far = rows.flatten(1, 2) @ context_keys.permute(1, 2, 0)
    far = far.view(kv_heads, num_blocks, -1, length)
    near = rows @ block_keys.permute(2, 0, 3, 1)
    # Added rather than filled in: the gradient passes a sum without another pass over memory.
    mask = queries.new_zeros(num_blocks, 1, length + slots)
    distance = anchors[:, None] - torch.arange(length, device=anchors.device)
    mask[:, 0, :length][(distance <= 0) | (distance >= window)] = -torch.inf
    weights = (torch.cat([far, near], dim=-1) + mask).softmax(dim=-1)
    far, near = weights.split([length, slots], dim=-1)
    mixed = near @ block_values.permute(2, 0, 1, 3)
    mixed = mixed + (far.flatten(1, 2) @ context_values.transpose(0, 1)).view_as(mixed)
    mixed = mixed.view(kv_heads, num_blocks, slots, heads // kv_heads, head_dim)
    return mixed.permute(1, 2, 0, 3, 4).reshape(num_blocks, slots, heads * head_dim)

"""What torch computes row by row: norms, activations, rotary positions."""

import torch
from torch import Tensor


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

"""Random weights of a size that lets every part of a drafter matter."""

import torch
from torch import Tensor


def random_tensor(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Return weights for the tensor of a drafter, in bfloat16."""
    values = torch.randn(shape, generator=generator)
    if name.endswith("base_kernel"):
        values = 0.3 * values + torch.tensor([1.0, 0.0])[None, :, None]
    elif len(shape) == 1:
        values = 1.0 + 0.1 * values
    elif "codebook" not in name:
        # What sublayers add has to outweigh the embedding, or every slot predicts its own mask.
        gain = 8.0 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
        values = gain * values * shape[-1] ** -0.5
    return values.to(torch.bfloat16)


def draft_ids(draft_vocab_size: int, vocab_size: int) -> Tensor:
    """Return the map of a reduced head, as files hold it: target id less draft id."""
    indices = torch.arange(draft_vocab_size)
    # Spread over the whole vocabulary, so that an id and its column differ nearly everywhere.
    return indices * vocab_size // draft_vocab_size - indices

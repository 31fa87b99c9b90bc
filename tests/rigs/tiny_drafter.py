"""A drafter of a few thousand parameters, and sequences for it to learn."""

import torch

from dflash.train.frozen import FrozenTarget
from dflash.train.head import draft_head
from dflash.train.model import Drafter
from dflash.train.sequences import TappedSequence
from dflash.train.shape import DrafterShape

TINY_SHAPE = DrafterShape(
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    max_position_embeddings=128,
    block_size=4,
    mask_token_id=0,
    target_layer_ids=(0, 1),
    num_target_layers=2,
    vocab_size=24,
    selector_rank=4,
    selector_top_k=3,
)


def tiny_drafter(seed: int = 0) -> Drafter:
    torch.manual_seed(seed)
    return Drafter(TINY_SHAPE)


def tiny_embedding() -> torch.Tensor:
    return torch.randn(TINY_SHAPE.vocab_size, 32, generator=torch.Generator().manual_seed(7))


def tiny_target(ids: torch.Tensor | None = None) -> FrozenTarget:
    embedding = tiny_embedding()
    head = draft_head(embedding, torch.arange(24) if ids is None else ids)
    return FrozenTarget("fingerprint of the target", embedding, head, teacher=None)


def tiny_sequence(seed: int, length: int = 40, prompt_length: int = 6) -> TappedSequence:
    generator = torch.Generator().manual_seed(seed)
    return TappedSequence(
        kind="noise",
        prompt_length=prompt_length,
        temperature=0.0,
        token_ids=torch.randint(1, 6, (length,), generator=generator, dtype=torch.int32),
        features=torch.randn(length, 64, generator=generator),
    )

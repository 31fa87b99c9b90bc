"""An MTP head of a few thousand parameters in training, for the sequences of `tiny_drafter`."""

from dataclasses import replace

import torch
from torch import Tensor

from dflash.train.frozen import FrozenTarget
from dflash.train.mtp_model import MtpHead
from dflash.train.mtp_shape import MtpShape
from dflash.train.teacher import Teacher
from tests.rigs.tiny_drafter import tiny_target
from tests.rigs.tiny_executor import tiny_config

TINY_MTP_SHAPE = MtpShape(
    hidden_size=32,
    intermediate_size=48,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    max_position_embeddings=128,
    draft_length=3,
    target_layer_ids=(0, 1),
    num_target_layers=2,
    vocab_size=24,
)


def tiny_mtp_head(seed: int = 0, **changes: int) -> MtpHead:
    torch.manual_seed(seed)
    return MtpHead(replace(TINY_MTP_SHAPE, **changes))


def target_that_norms(ids: Tensor | None = None) -> FrozenTarget:
    """A target whose deepest tapped layer is its last one: only the final norm is left to do."""
    weights = {"model.norm.weight": torch.linspace(0.5, 1.5, 32)}
    return replace(tiny_target(ids), teacher=Teacher(tiny_config(hidden_size=32), 2, weights))

"""MTP heads with random weights, in our own file format, for any target."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.rigs.random_tensor import draft_ids, random_tensor
from dflash.drafters.checkpoint import drafter_tensor_shapes
from dflash.drafters.mtp_config import mtp_config_from_json
from dflash.models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class TinyMtp:
    """What kind of head to make up.

    Attributes:
        window: Positions that its layer looks back; None sees the whole context.
        draft_vocab_size: Columns of a reduced head, spread over the vocabulary; None for all.
        draft_length: Most draft tokens of a chain.
        has_offset_norms: Whether its norms multiply by ``1 + weight``.
        seed: Of the weights.
    """

    window: int | None = None
    draft_vocab_size: int | None = None
    draft_length: int = 4
    has_offset_norms: bool = False
    seed: int = 0


def tiny_mtp_json(kind: TinyMtp, target: ModelConfig) -> dict[str, Any]:
    """Return the config.json of a head for a target, with the target's own head shapes."""
    return {
        "architectures": ["MTPDraftModel"],
        "model_type": "qwen3_next" if kind.has_offset_norms else "qwen3",
        "hidden_size": target.hidden_size,
        "intermediate_size": target.intermediate_size,
        "num_attention_heads": target.num_heads,
        "num_key_value_heads": target.num_kv_heads,
        "head_dim": target.head_dim,
        "sliding_window": kind.window,
        "rope_parameters": {"rope_theta": target.rope_theta, "rope_type": "default"},
        "max_position_embeddings": target.max_position_embeddings,
        "rms_norm_eps": 1e-6,
        "vocab_size": target.vocab_size,
        "draft_vocab_size": kind.draft_vocab_size or target.vocab_size,
        "num_target_layers": target.num_layers,
        "mtp_num_hidden_layers": 1,
        "mtp_config": {"draft_length": kind.draft_length},
    }


def tiny_mtp_tensors(content: Mapping[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """Return random weights for a config.json, in bfloat16, and the map of a reduced head."""
    config = mtp_config_from_json(content)
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: random_tensor(name, shape, generator)
        for name, shape in drafter_tensor_shapes(config).items()
    }
    if config.has_offset_norms:
        tensors = {n: t - 1.0 if t.ndim == 1 else t for n, t in tensors.items()}
    if config.is_reduced:
        tensors["d2t"] = draft_ids(config.draft_vocab_size, config.vocab_size)
    return tensors


def write_tiny_mtp(
    folder: Path,
    kind: TinyMtp,
    target: ModelConfig,
    content: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Tensor] | None = None,
) -> Path:
    """Write a head's folder and return it.

    Args:
        folder: Where; made if need be.
        kind: What kind of head.
        target: What it drafts for.
        content: Its config.json, where it differs from what ``kind`` says.
        tensors: Its tensors, where they differ.
    """
    content = content or tiny_mtp_json(kind, target)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(content))
    found = tiny_mtp_tensors(content, kind.seed) if tensors is None else tensors
    save_file(dict(found), folder / "model.safetensors")
    return folder

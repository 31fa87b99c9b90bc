"""Drafters with random weights, in the published formats, for any target."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.rigs.random_tensor import draft_ids, random_tensor
from benchmarks.rigs.tiny_mtp import TinyMtp, write_tiny_mtp
from dflash.drafters.binding import open_bound_drafter
from dflash.drafters.checkpoint import drafter_tensor_shapes
from dflash.drafters.config import dflash_config_from_json
from dflash.drafters.dflash import DFlashDrafter
from dflash.drafters.load import load_drafter
from dflash.drafters.mtp import MtpDrafter
from dflash.load import LoadedTarget
from dflash.models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class TinyDrafter:
    """What kind of drafter to make up.

    Attributes:
        version: 1, or 2 with convolution and selector.
        window: Sliding window of every layer; None sees the whole context.
        is_causal: Whether a slot sees only the slots up to itself.
        draft_vocab_size: Columns of a reduced head, spread over the vocabulary; None for all.
        num_layers: Draft layers.
        block_size: Slots of a block.
        seed: Of the weights.
    """

    version: int = 2
    window: int | None = None
    is_causal: bool = False
    draft_vocab_size: int | None = None
    num_layers: int = 2
    block_size: int = 8
    seed: int = 0


def tiny_drafter_json(kind: TinyDrafter, target: ModelConfig) -> dict[str, Any]:
    """Return the config.json of a drafter for a target, with the target's own head shapes."""
    layer_type = "full_attention" if kind.window is None else "sliding_attention"
    nested: dict[str, Any] = {
        "block_size": kind.block_size,
        "mask_token_id": 0,
        "target_layer_ids": [0, target.num_layers - 1],
    }
    if kind.version == 2:
        nested |= {
            "conv_kernel_size": 2,
            "conv_group_size": 16,
            "selector_rank": 8,
            "selector_top_k": 16,
        }
    return {
        "architectures": ["DFlashDraftModel" if kind.version == 1 else "DFlash2DraftModel"],
        "is_causal": kind.is_causal,
        "hidden_size": target.hidden_size,
        "intermediate_size": target.intermediate_size,
        "num_hidden_layers": kind.num_layers,
        "num_attention_heads": target.num_heads,
        "num_key_value_heads": target.num_kv_heads,
        "head_dim": target.head_dim,
        "layer_types": [layer_type] * kind.num_layers,
        "sliding_window": kind.window,
        "rope_parameters": {"rope_theta": target.rope_theta, "rope_type": "default"},
        "max_position_embeddings": target.max_position_embeddings,
        "rms_norm_eps": 1e-6,
        "vocab_size": target.vocab_size,
        "draft_vocab_size": kind.draft_vocab_size or target.vocab_size,
        "num_target_layers": target.num_layers,
        "dflash_config": nested,
    }


def tiny_drafter_tensors(content: Mapping[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """Return random weights for a config.json, in bfloat16, and the map of a reduced head."""
    config = dflash_config_from_json(content)
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: random_tensor(name, shape, generator)
        for name, shape in drafter_tensor_shapes(config).items()
    }
    if config.is_reduced:
        tensors["d2t"] = draft_ids(config.draft_vocab_size, config.vocab_size)
    return tensors


def write_tiny_drafter(
    folder: Path,
    kind: TinyDrafter,
    target: ModelConfig,
    content: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Tensor] | None = None,
) -> Path:
    """Write a drafter's folder and return it.

    Args:
        folder: Where; made if need be.
        kind: What kind of drafter.
        target: What it drafts for.
        content: Its config.json, where it differs from what ``kind`` says.
        tensors: Its tensors, where they differ.
    """
    content = content or tiny_drafter_json(kind, target)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(content))
    found = tiny_drafter_tensors(content, kind.seed) if tensors is None else tensors
    save_file(dict(found), folder / "model.safetensors")
    return folder


def write_tiny(folder: Path, kind: TinyDrafter | TinyMtp, target: ModelConfig) -> Path:
    """Write a drafter of any kind into a folder and return it."""
    if isinstance(kind, TinyMtp):
        return write_tiny_mtp(folder, kind, target)
    return write_tiny_drafter(folder, kind, target)


def load_tiny_drafter(
    folder: Path, kind: TinyDrafter | TinyMtp, target: LoadedTarget, max_runs: int
) -> DFlashDrafter | MtpDrafter:
    """Write a drafter for a loaded target into a folder and load it.

    Args:
        folder: Where; made if need be.
        kind: What kind of drafter.
        target: What it drafts for.
        max_runs: Most draft blocks of one pass.
    """
    lender = target.lender
    write_tiny(folder, kind, lender.config)
    checkpoint = open_bound_drafter(folder, lender.config, lender.fingerprint)
    return load_drafter(checkpoint, lender, max_runs)

"""A trained drafter as a folder in the published format."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from dflash.cache_folder import replaced_whole
from dflash.drafters.mtp_config import MTP_ARCHITECTURE
from dflash.train.finite import check_finite
from dflash.train.folders import check_drafter_folder, writing
from dflash.train.mtp_shape import MtpShape
from dflash.train.run_state import RunState
from dflash.train.shape import DrafterShape

_SECOND_VERSION_ONLY = ("attention_conv", "mlp_conv", "candidate_selector")


def export_drafter(state: RunState, folder: Path, option: str = "--export") -> None:
    """Write the drafter as ``config.json`` and ``model.safetensors``, replacing an older one.

    A reader sees the old folder, none for a moment, or the new one; never a part.

    Args:
        state: The run's state.
        folder: Where; its parent is made if need be.
        option: What named the folder, for messages.

    Raises:
        ConfigError: The folder holds anything but a drafter.
        DivergedError: A tensor holds numbers that are not finite.
        EngineError: The folder cannot be written.
    """
    check_drafter_folder(option, folder)
    tensors = _tensors(state)
    check_finite(tensors, state.step)
    # A link stays one: what it leads to is replaced.
    with writing(folder), replaced_whole(folder.resolve()) as part:
        weights = part / "model.safetensors"
        save_file(tensors, weights, metadata={"format": "pt"})
        # The library makes it private to this user; a drafter is read by others.
        weights.chmod(0o644)
        text = json.dumps(_config(state), indent=2)
        (part / "config.json").write_text(text + "\n", encoding="utf-8")


def _tensors(state: RunState) -> dict[str, Tensor]:
    is_mtp, is_first = isinstance(state.shape, MtpShape), not state.second_version
    tensors = {
        f"mtp.{name}" if is_mtp else name: tensor.to(torch.bfloat16).contiguous()
        for name, tensor in state.drafter.items()
        if not (is_first and any(part in name for part in _SECOND_VERSION_ONLY))
    }
    # The published form of a reduced head: how far a target id lies above its draft id.
    tensors["d2t"] = state.shortlist - torch.arange(len(state.shortlist))
    return tensors


def _config(state: RunState) -> dict[str, Any]:
    shape = state.shape
    return {
        **(_of_chains(shape, state) if isinstance(shape, MtpShape) else _of_blocks(shape, state)),
        "model_type": "qwen3",
        "attention_bias": False,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "sliding_window": shape.sliding_window,
        "use_sliding_window": True,
        "rope_parameters": {"rope_theta": shape.rope_theta, "rope_type": "default"},
        "max_position_embeddings": shape.max_position_embeddings,
        "rms_norm_eps": shape.rms_norm_eps,
        "vocab_size": shape.vocab_size,
        "draft_vocab_size": len(state.shortlist),
        "num_target_layers": shape.num_target_layers,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "train": {"steps": state.step, "tokens": state.tokens, "seed": state.seed},
    }


def _of_chains(shape: MtpShape, state: RunState) -> dict[str, Any]:
    return {
        "architectures": [MTP_ARCHITECTURE],
        "mtp_num_hidden_layers": 1,
        "mtp_config": {
            "draft_length": shape.draft_length,
            "target_fingerprint": state.target_fingerprint,
        },
    }


def _of_blocks(shape: DrafterShape, state: RunState) -> dict[str, Any]:
    nested: dict[str, Any] = {
        "block_size": shape.block_size,
        "mask_token_id": shape.mask_token_id,
        "target_layer_ids": list(shape.target_layer_ids),
        "target_fingerprint": state.target_fingerprint,
    }
    if state.second_version:
        nested |= {
            "conv_kernel_size": shape.conv_kernel_size,
            "conv_group_size": shape.conv_group_size,
            "selector_rank": shape.selector_rank,
            "selector_top_k": shape.selector_top_k,
        }
    return {
        "architectures": ["DFlash2DraftModel" if state.second_version else "DFlashDraftModel"],
        "is_causal": False,
        "num_hidden_layers": shape.num_layers,
        "layer_types": ["sliding_attention"] * shape.num_layers,
        "dflash_config": nested,
    }

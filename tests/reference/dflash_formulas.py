"""Drafters, features and tables made from formulas, so that two programs can build the same.

Nothing here imports either program: the script that asks the reference implementation runs where
ours is not installed.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

HIDDEN, VOCAB, BLOCK, WINDOW, TAPS = 64, 40, 5, 12, (0, 2)
ANCHOR, MASK = 7, 3
# Context lengths under and over the window, each given in two parts.
CONTEXTS = {"short": (3, 2), "long": (20, 13)}
KINDS = {"full": (False, False), "window": (True, False), "causal window": (True, True)}


def case_names() -> list[str]:
    """Every case: version, what its layers see, how long the context is."""
    return [f"v{v} {kind} {context}" for v in (1, 2) for kind in KINDS for context in CONTEXTS]


def parts_of(case: str) -> tuple[int, str, tuple[int, int]]:
    """Version, kind and the two parts of the context of a case."""
    version, *kind, context = case.split()
    return int(version[1:]), " ".join(kind), CONTEXTS[context]


def config_json(version: int, kind: str) -> dict[str, Any]:
    """The drafter's config.json."""
    slides, is_causal = KINDS[kind]
    nested: dict[str, Any] = {
        "block_size": BLOCK,
        "mask_token_id": MASK,
        "target_layer_ids": list(TAPS),
    }
    if version == 2:
        nested |= {
            "conv_kernel_size": 2,
            "conv_group_size": 16,
            "selector_rank": 8,
            "selector_top_k": 16,
            "output_multiplier": 0.4,
            "final_logit_softcapping": 2.5,
            "input_embedding_scale": 1.5,
        }
    return {
        "architectures": ["DFlashDraftModel" if version == 1 else "DFlash2DraftModel"],
        "is_causal": is_causal,
        "hidden_size": HIDDEN,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "layer_types": ["sliding_attention" if slides else "full_attention"] * 2,
        "sliding_window": WINDOW,
        "use_sliding_window": slides,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-6,
        "vocab_size": VOCAB,
        "num_target_layers": 3,
        "dflash_config": nested,
    }


def wave(index: int, shape: tuple[int, ...], scale: float = 1.0) -> Tensor:
    """Numbers without a pattern that a rounding could hide in: sines of a growing step."""
    steps = torch.arange(math.prod(shape), dtype=torch.float64)
    values = torch.sin(0.001 * (index + 1) * steps * steps + 0.3 * steps + index)
    return (scale * values).float().view(shape)


def tensors(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The weights of a drafter, by the published names."""
    return {name: _tensor(name, index, shapes[name]) for index, name in enumerate(sorted(shapes))}


def _tensor(name: str, index: int, shape: tuple[int, ...]) -> Tensor:
    if name.endswith("norm.weight") or "layernorm" in name:
        return 1.0 + wave(index, shape, 0.2)
    if name.endswith("base_kernel"):
        return wave(index, shape, 0.2) + torch.tensor([1.0, 0.0])[None, :, None]
    if "codebook" in name:
        return wave(index, shape)
    return wave(index, shape, (2.0 / shape[-1]) ** 0.5)


def embedding() -> Tensor:
    """The target's embedding table, ``[vocab, hidden]``."""
    return wave(101, (VOCAB, HIDDEN))


def head() -> Tensor:
    """The target's head, ``[vocab, hidden]``."""
    return wave(102, (VOCAB, HIDDEN), 0.2)


def features(length: int) -> Tensor:
    """What the target's tapped layers held for a context, ``[length, taps * hidden]``."""
    return wave(103, (length, len(TAPS) * HIDDEN))

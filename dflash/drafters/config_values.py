"""Values that the config.json of every kind of drafter holds, checked one by one."""

from collections.abc import Mapping
from typing import Any

from dflash.errors import CheckpointError
from dflash.models.config_values import positive_int, rope_theta
from dflash.program import AttentionShape

MAX_CANDIDATES = 16


def attention_shape(values: Mapping[str, Any], num_layers: int) -> AttentionShape:
    """Return the geometry of a drafter's attention layers."""
    num_heads = positive_int(values, "num_attention_heads")
    return AttentionShape(
        num_heads=num_heads,
        num_kv_heads=positive_int(values, "num_key_value_heads", default=num_heads),
        head_dim=positive_int(
            values, "head_dim", default=positive_int(values, "hidden_size") // num_heads
        ),
        rope_theta=rope_theta(values),
        num_layers=num_layers,
    )


def draft_vocab_size(values: Mapping[str, Any], vocab_size: int, num_candidates: int) -> int:
    """Return the columns of a drafter's head, enough for the candidates of a slot."""
    size = positive_int(values, "draft_vocab_size", default=vocab_size)
    if not num_candidates <= size <= vocab_size:
        raise CheckpointError(
            f"draft_vocab_size is {size}; it must lie between the {num_candidates} candidates of "
            f"a slot and vocab_size {vocab_size}"
        )
    return size


def optional_positive_int(values: Mapping[str, Any], key: str) -> int | None:
    """Return a whole number over 0, or None where there is none."""
    return None if values.get(key) is None else positive_int(values, key)


def optional_text(values: Mapping[str, Any], key: str) -> str | None:
    """Return a text, or None where there is none."""
    text = values.get(key)
    if text is not None and not isinstance(text, str):
        raise CheckpointError(f"{key} must be a text, got {text!r}")
    return text

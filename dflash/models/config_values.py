"""Values of a config.json, checked one by one; a message starts with the key."""

import sys
from collections.abc import Mapping
from typing import Any, TypeGuard

from dflash.errors import CheckpointError

_MAX_INT = 2**31 - 1


def refuse_other_values(content: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that names a computation we do not have.

    Args:
        content: The content of config.json.
        fixed: Switches that change the numbers, with the only value we compute.

    Raises:
        CheckpointError: A switch has another value, or the weights are quantised.
    """
    for key, value in fixed.items():
        found = content.get(key, value)
        # True equals 1 in Python, and a file that says the one does not mean the other.
        if found != value or isinstance(found, bool) != isinstance(value, bool):
            raise CheckpointError(
                f"{key} is {content[key]!r}; this engine computes {value!r} only; choose a "
                "checkpoint with that"
            )
    if (quantization := content.get("quantization_config")) is not None:
        method = quantization.get("quant_method") if isinstance(quantization, Mapping) else None
        raise CheckpointError(
            f"quantization_config is set (method {method!r}); this engine reads plain bfloat16, "
            "float16 or float32 weights; choose the checkpoint it was quantised from"
        )


def rope_theta(content: Mapping[str, Any]) -> float:
    """Return the rotary base; transformers 5 nests it, transformers 4 keeps it flat."""
    key = "rope_parameters" if content.get("rope_parameters") else "rope_scaling"
    rope = content.get(key) or {}
    if not isinstance(rope, Mapping):
        raise CheckpointError(f"{key} must be an object, got {rope!r}")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise CheckpointError(
            f"{key}.rope_type is {kind!r}; this engine computes 'default' only; choose a "
            "checkpoint without rotary scaling"
        )
    if (turned := rope.get("partial_rotary_factor", 1.0)) != 1.0:
        raise CheckpointError(
            f"{key}.partial_rotary_factor is {turned!r}; this engine turns whole heads only (1.0)"
        )
    return positive_number(rope if "rope_theta" in rope else content, "rope_theta", 10_000.0)


def optional_token_id(value: Any, key: str, vocab_size: int) -> int | None:
    """Return a token id, or None where there is none."""
    if value is None:
        return None
    if not is_int(value) or not 0 <= value < vocab_size:
        raise CheckpointError(f"{key} must hold ids in [0, {vocab_size}), got {value!r}")
    return value


def positive_int(content: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """Return a whole number over 0."""
    value = content.get(key)
    if value is None:
        value = default
    if not is_int(value) or not 0 < value <= _MAX_INT:
        raise CheckpointError(
            f"{key} must be a positive whole number, {_MAX_INT} at most, got {value!r}"
        )
    return value


def positive_number(content: Mapping[str, Any], key: str, default: float) -> float:
    """Return a finite number over 0."""
    value = content.get(key, default)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # A whole number of a JSON file may be one that no float holds.
    if not is_number or not 0 < value <= sys.float_info.max:
        raise CheckpointError(f"{key} must be a positive number, got {value!r}")
    return float(value)


def flag(content: Mapping[str, Any], key: str) -> bool:
    """Return a switch; it is off where it is missing."""
    value = content.get(key, False)
    if not isinstance(value, bool):
        raise CheckpointError(f"{key} must be true or false, got {value!r}")
    return value


def is_int(value: Any) -> TypeGuard[int]:
    """Whether it is a whole number; ``True`` is not, though Python counts it as one."""
    return isinstance(value, int) and not isinstance(value, bool)

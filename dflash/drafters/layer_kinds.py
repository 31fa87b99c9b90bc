"""Which keys each layer of a drafter sees: its window, and whether its block is causal."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dflash.errors import CheckpointError
from dflash.models.config_values import flag, positive_int

_SLIDING = "sliding_attention"
_FULL = "full_attention"


@dataclass(frozen=True, slots=True)
class LayerKind:
    """What one layer's attention sees.

    Attributes:
        window: Keys must be nearer than this many positions; None sees all.
        is_causal: Whether a slot sees only the block's slots up to itself.
    """

    window: int | None
    is_causal: bool


def layer_kinds(
    content: Mapping[str, Any], values: Mapping[str, Any], num_layers: int
) -> tuple[LayerKind, ...]:
    """Return the kind of each layer.

    A layer's block is causal by ``is_causal`` at the top, else by ``dflash_config.causal``, else
    exactly where its attention slides.

    Args:
        content: The config.json as it is.
        values: The same with ``dflash_config`` laid over it.
        num_layers: How many layers there are.

    Raises:
        CheckpointError: A key is impossible, or contradicts another.
    """
    types = _layer_types(values, num_layers)
    causal = _causality(content)
    windows = _windows(values, types)
    return tuple(
        LayerKind(window, kind == _SLIDING if causal is None else causal)
        for kind, window in zip(types, windows, strict=True)
    )


def _layer_types(values: Mapping[str, Any], num_layers: int) -> list[str]:
    types = values.get("layer_types")
    if types is None:
        return [_FULL] * num_layers
    is_list = isinstance(types, list) and all(kind in (_FULL, _SLIDING) for kind in types)
    if not is_list or len(types) != num_layers:
        raise CheckpointError(
            f"layer_types must name {_FULL!r} or {_SLIDING!r} for each of the {num_layers} layers, "
            f"got {types!r}"
        )
    return types


def _causality(content: Mapping[str, Any]) -> bool | None:
    nested = content.get("dflash_config") or {}
    for mapping, key in ((content, "is_causal"), (nested, "causal")):
        if mapping.get(key) is not None:
            return flag(mapping, key)
    return None


def _windows(values: Mapping[str, Any], types: list[str]) -> list[int | None]:
    if flag(values, "use_swa"):
        # Slides every layer, and leaves causality to what the layers were.
        return [positive_int(values, "swa_window_size")] * len(types)
    if _SLIDING in types and values.get("use_sliding_window") is False:
        raise CheckpointError(
            f"use_sliding_window is false, but layer_types names {_SLIDING!r}; one of them is wrong"
        )
    return [positive_int(values, "sliding_window") if kind == _SLIDING else None for kind in types]

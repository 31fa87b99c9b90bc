"""The config.json of the speculators library, in the words of the published DFlash files."""

from collections.abc import Mapping
from typing import Any

from dflash.errors import CheckpointError
from dflash.models.config_values import flag, is_int

METHOD_KEY = "speculators_model_type"
_ARCHITECTURES = {"dflash": "DFlashDraftModel", "dflash2": "DFlash2DraftModel"}


def flattened(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config as the published files write it; one of those comes back as it is.

    The library nests the sizes in ``transformer_layer_config``, counts tapped layers from 1 (0 is
    the embedding), and says of sliding layers alone whether their blocks are causal.

    Raises:
        CheckpointError: The file is of another method of that library, or a key is impossible.
    """
    method = content.get(METHOD_KEY)
    if method is None:
        return content
    if not isinstance(method, str) or method not in _ARCHITECTURES:
        raise CheckpointError(
            f"{METHOD_KEY} is {method!r}; this engine drafts with {', '.join(_ARCHITECTURES)}"
        )
    sizes = content.get("transformer_layer_config")
    if not isinstance(sizes, Mapping):
        raise CheckpointError(f"transformer_layer_config must be an object, got {sizes!r}")
    own = {
        "architectures": [_ARCHITECTURES[method]],
        "target_layer_ids": _target_layer_ids(content.get("aux_hidden_state_layer_ids")),
        # Without a word on causality, exactly the sliding layers are causal.
        "is_causal": False if _slides_both_ways(content) else None,
    }
    return {**sizes, **content, **own}


def _target_layer_ids(ids: Any) -> list[int] | None:
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(is_int(layer) and layer > 0 for layer in ids):
        raise CheckpointError(
            f"aux_hidden_state_layer_ids must list target layers counted from 1, got {ids!r}; the "
            "embedding's output (0) is not tapped here"
        )
    return [layer - 1 for layer in ids]


def _slides_both_ways(content: Mapping[str, Any]) -> bool:
    return flag({"sliding_window_non_causal": True} | dict(content), "sliding_window_non_causal")

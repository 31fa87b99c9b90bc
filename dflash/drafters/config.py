"""A drafter's sizes and constants, read from the config.json of its published checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dflash.config import MAX_BLOCK_SIZE
from dflash.drafters.config_values import (
    MAX_CANDIDATES,
    attention_shape,
    draft_vocab_size,
    optional_positive_int,
    optional_text,
)
from dflash.drafters.layer_kinds import LayerKind, layer_kinds
from dflash.drafters.speculators import METHOD_KEY, flattened
from dflash.errors import CheckpointError
from dflash.models.config_values import (
    is_int,
    optional_token_id,
    positive_int,
    positive_number,
    refuse_other_values,
)
from dflash.program import AttentionShape

CONV_TAPS = 2
CONV_GROUP = 16
# Far beyond any drafter: a damaged number should not be built layer by layer.
_MAX_LAYERS = 1024

_VERSIONS = {
    "DFlashDraftModel": 1,
    "DFlashSpeculator": 1,
    "DFlash2DraftModel": 2,
    "DFlash2BeamDraftModel": 2,
    "MiniMaxDFlash2DraftModel": 2,
}
# Switches that change the numbers, and the only value our drafter computes.
_FIXED = {
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "partial_rotary_factor": 1.0,
    "is_neox_style": True,
    "rope_is_neox_style": True,
}
# What some drafters add, and why we cannot run them.
_REFUSED = {
    "attention_sink_bias": "attention sinks are not computed",
    "add_swa_attention_sink_bias": "attention sinks are not computed",
    "add_full_attention_sink_bias": "attention sinks are not computed",
    "attention_value_scale": "scaled attention values are not computed",
    "aux_hidden_norms": "norms of single taps are not computed",
    "has_own_lm_head": "a drafter borrows its target's head",
    "sample_from_anchor": "its slots would predict one token later than DFlash's",
}
_MASK_KEYS = ("mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id")
_SECOND_VERSION_KEYS = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")


@dataclass(frozen=True, slots=True)
class DFlashConfig:
    """What the drafter's forward, its walk and its memory plan need to know.

    Attributes:
        version: 1, or 2 with convolution and selector.
        hidden_size: Width of the residual stream, the target's own.
        intermediate_size: Width inside the MLP.
        attention: Geometry of heads, rotary positions and pages.
        layers: Which keys each layer sees.
        rms_norm_eps: Added to the mean square in each norm.
        max_position_embeddings: Longest context it was trained for.
        block_size: Slots of a draft pass, the anchor's included.
        mask_token_id: Row of the target's embedding table that fills the slots to predict.
        target_layer_ids: Tapped target layers, from 0, in the order of their concatenation.
        num_target_layers: Layers of its target; None where the file does not say.
        vocab_size: Ids of its target.
        draft_vocab_size: Columns of its head; under ``vocab_size`` for a reduced head.
        selector_rank: Width of the selector's codebooks; 0 in version 1.
        num_candidates: Candidates of a slot.
        input_embedding_scale: Factor on the target's embedding rows.
        output_multiplier: Factor on the head's logits.
        final_logit_softcapping: Bound of the logits after that; None leaves them.
        target_fingerprint: Of the checkpoint it was trained for; None where the file does not say.
    """

    version: int
    hidden_size: int
    intermediate_size: int
    attention: AttentionShape
    layers: tuple[LayerKind, ...]
    rms_norm_eps: float
    max_position_embeddings: int
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int | None
    vocab_size: int
    draft_vocab_size: int
    selector_rank: int
    num_candidates: int
    input_embedding_scale: float
    output_multiplier: float
    final_logit_softcapping: float | None
    target_fingerprint: str | None

    @property
    def max_draft_length(self) -> int:
        """Most draft tokens of one pass: the block without its anchor."""
        return self.block_size - 1

    @property
    def is_reduced(self) -> bool:
        """Whether the head knows only some of the target's ids."""
        return self.draft_vocab_size < self.vocab_size

    @property
    def kind(self) -> str:
        """What kind of drafter it is, for messages and reports."""
        return f"DFlash v{self.version}"

    @property
    def reach(self) -> str:
        """How far one pass of it drafts, for reports."""
        most = self.max_draft_length
        return f"block of {self.block_size}: an anchor and up to {most} draft tokens"


def names_dflash(content: Mapping[str, Any]) -> bool:
    """Whether a config.json is that of a DFlash drafter, whatever else it repeats."""
    return content.get(METHOD_KEY) is not None or _first_architecture(content) in tuple(_VERSIONS)


def dflash_config_from_json(content: Mapping[str, Any]) -> DFlashConfig:
    """Return the drafter's config.

    A value in ``dflash_config`` wins over one at the top.

    Args:
        content: The content of config.json, as published for DFlash and DFlash 2, or as the
            speculators library writes it.

    Raises:
        CheckpointError: A value is missing or impossible, or names a computation that our drafter
            does not have. The message starts with the key.
    """
    content = flattened(content)
    nested = content.get("dflash_config") or {}
    if not isinstance(nested, Mapping):
        raise CheckpointError(f"dflash_config must be an object, got {nested!r}")
    values = {**content, **{key: value for key, value in nested.items() if value is not None}}
    version = _version(values)
    _refuse_what_we_lack(values)
    attention = attention_shape(values, _num_layers(values))
    hidden_size = positive_int(values, "hidden_size")
    vocab_size = positive_int(values, "vocab_size")
    rank, num_candidates = _second_version(values, version, hidden_size)
    return DFlashConfig(
        version=version,
        hidden_size=hidden_size,
        intermediate_size=positive_int(values, "intermediate_size"),
        attention=attention,
        layers=layer_kinds(content, values, attention.num_layers),
        rms_norm_eps=positive_number(values, "rms_norm_eps", default=1e-6),
        max_position_embeddings=positive_int(values, "max_position_embeddings"),
        block_size=_block_size(values),
        mask_token_id=_mask_token_id(values, vocab_size),
        target_layer_ids=_target_layer_ids(values, attention.num_layers),
        num_target_layers=optional_positive_int(values, "num_target_layers"),
        vocab_size=vocab_size,
        draft_vocab_size=draft_vocab_size(values, vocab_size, num_candidates),
        selector_rank=rank,
        num_candidates=num_candidates,
        input_embedding_scale=positive_number(values, "input_embedding_scale", default=1.0),
        output_multiplier=positive_number(values, "output_multiplier", default=1.0),
        final_logit_softcapping=_softcap(values),
        target_fingerprint=optional_text(values, "target_fingerprint"),
    )


def _version(values: Mapping[str, Any]) -> int:
    name = _first_architecture(values)
    if not isinstance(name, str) or name not in _VERSIONS:
        raise CheckpointError(
            f"architectures names {name!r}; this engine drafts with {', '.join(_VERSIONS)}"
        )
    return _VERSIONS[name]


def _first_architecture(values: Mapping[str, Any]) -> Any:
    names = values.get("architectures")
    return names[0] if isinstance(names, list) and names else names


def _refuse_what_we_lack(values: Mapping[str, Any]) -> None:
    refuse_other_values(values, _FIXED)
    for key, reason in _REFUSED.items():
        # A scale of 1 changes nothing; True equals 1 in Python and would.
        is_neutral = not values.get(key) or (values[key] == 1.0 and values[key] is not True)
        if not is_neutral:
            raise CheckpointError(f"{key} is {values[key]!r}: {reason}; use another drafter")
    width = values.get("target_hidden_size")
    if width not in (None, values.get("hidden_size")):
        raise CheckpointError(
            f"target_hidden_size is {width!r}, but a drafter is as wide as its target here: "
            f"hidden_size is {values.get('hidden_size')!r}"
        )


def _second_version(values: Mapping[str, Any], version: int, hidden_size: int) -> tuple[int, int]:
    """Return the selector's rank and the candidates of a slot."""
    if version == 1:
        for key in _SECOND_VERSION_KEYS:
            if values.get(key):
                raise CheckpointError(
                    f"{key} is {values[key]!r}, but architectures names a DFlash v1 drafter, which "
                    "has neither convolution nor selector; it should name DFlash2DraftModel"
                )
        return 0, MAX_CANDIDATES
    for key, computed in (("conv_kernel_size", CONV_TAPS), ("conv_group_size", CONV_GROUP)):
        if values.get(key) != computed:
            raise CheckpointError(
                f"{key} is {values.get(key)!r}; this engine computes {computed} only"
            )
    if hidden_size % CONV_GROUP:
        raise CheckpointError(
            f"hidden_size is {hidden_size}, which conv_group_size {CONV_GROUP} does not divide"
        )
    num_candidates = positive_int(values, "selector_top_k")
    if num_candidates > MAX_CANDIDATES:
        raise CheckpointError(
            f"selector_top_k is {num_candidates}; this engine walks over {MAX_CANDIDATES} "
            "candidates a slot at most"
        )
    return positive_int(values, "selector_rank"), num_candidates


def _num_layers(values: Mapping[str, Any]) -> int:
    num_layers = positive_int(values, "num_hidden_layers")
    if num_layers > _MAX_LAYERS:
        raise CheckpointError(
            f"num_hidden_layers is {num_layers}; a drafter has {_MAX_LAYERS} layers at most here"
        )
    return num_layers


def _block_size(values: Mapping[str, Any]) -> int:
    block_size = positive_int(values, "block_size", default=MAX_BLOCK_SIZE)
    if not 2 <= block_size <= MAX_BLOCK_SIZE:
        raise CheckpointError(
            f"block_size is {block_size}; a draft block has its anchor, at least one more slot, "
            f"and fits one page of {MAX_BLOCK_SIZE} tokens"
        )
    return block_size


def _mask_token_id(values: Mapping[str, Any], vocab_size: int) -> int:
    for key in _MASK_KEYS:
        token_id = optional_token_id(values.get(key), key, vocab_size)
        if token_id is not None:
            return token_id
    raise CheckpointError(
        "mask_token_id is missing; it must name the row of the target's embedding table that "
        "fills the slots to predict"
    )


def _target_layer_ids(values: Mapping[str, Any], num_layers: int) -> tuple[int, ...]:
    ids = values.get("target_layer_ids")
    if ids is None:
        ids = list(default_taps(positive_int(values, "num_target_layers"), num_layers))
    is_list = isinstance(ids, list) and bool(ids) and all(is_int(i) and i >= 0 for i in ids)
    if not is_list or len(set(ids)) < len(ids):
        raise CheckpointError(
            f"target_layer_ids must list target layers counted from 0, each once, got {ids!r}"
        )
    return tuple(ids)


def default_taps(num_target_layers: int, num_taps: int) -> tuple[int, ...]:
    """Return the taps of a checkpoint that names none: spread from layer 1 to the third last."""
    if num_taps == 1:
        return (num_target_layers // 2,)
    step = (num_target_layers - 4) / (num_taps - 1)
    return tuple(round(1 + index * step) for index in range(num_taps))


def _softcap(values: Mapping[str, Any]) -> float | None:
    key = "final_logit_softcapping"
    # Both stand for "none" in published files.
    return None if values.get(key) in (None, 0) else positive_number(values, key, default=1.0)

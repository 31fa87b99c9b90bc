"""An MTP head's sizes and constants, read from its own config.json or from its target's."""

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
from dflash.errors import CheckpointError
from dflash.models.config_values import positive_int, positive_number, refuse_other_values
from dflash.program import AttentionShape

MTP_ARCHITECTURE = "MTPDraftModel"
_LAYERS_KEY = "mtp_num_hidden_layers"
# Each draft token is a pass of its own, and less likely than the one before it.
_USUAL_DRAFT_LENGTH = 3
# Switches that change the numbers, and the only value our head computes.
_FIXED = {
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "attn_output_gate": False,
    "partial_rotary_factor": 1.0,
    "mtp_use_dedicated_embeddings": False,
    _LAYERS_KEY: 1,
}
# Families whose norms multiply by one more than their weights.
_OFFSET_NORMS = {"qwen3_next", "qwen3_5", "qwen3_5_text"}


@dataclass(frozen=True, slots=True)
class MtpConfig:
    """What the head's forward and its memory plan need to know.

    Attributes:
        hidden_size: Width of the residual stream, the target's own.
        intermediate_size: Width inside the MLP.
        attention: Geometry of the one layer's heads, rotary positions and pages.
        window: Keys must be nearer than this many positions; None sees all.
        rms_norm_eps: Added to the mean square in each norm.
        has_offset_norms: Whether its norms multiply by ``1 + weight``.
        max_position_embeddings: Longest context it was trained for.
        max_draft_length: Most draft tokens of a chain.
        num_target_layers: Layers of its target; None where the file does not say.
        vocab_size: Ids of its target.
        draft_vocab_size: Columns of its head; under ``vocab_size`` for a reduced head.
        target_fingerprint: Of the checkpoint it was trained for; None where the file does not say.
    """

    hidden_size: int
    intermediate_size: int
    attention: AttentionShape
    window: int | None
    rms_norm_eps: float
    has_offset_norms: bool
    max_position_embeddings: int
    max_draft_length: int
    num_target_layers: int | None
    vocab_size: int
    draft_vocab_size: int
    target_fingerprint: str | None

    @property
    def is_reduced(self) -> bool:
        """Whether the head knows only some of the target's ids."""
        return self.draft_vocab_size < self.vocab_size

    @property
    def kind(self) -> str:
        """What kind of drafter it is, for messages and reports."""
        return "MTP"

    @property
    def reach(self) -> str:
        """How far one chain of it drafts, for reports."""
        return f"chain of up to {self.max_draft_length} draft tokens"


def names_mtp(content: Mapping[str, Any]) -> bool:
    """Whether a config.json is that of an MTP head, or of a target that ships one.

    Args:
        content: The content of a config.json that names no DFlash drafter; those may repeat any
            key of their targets.

    Raises:
        CheckpointError: What should be an object is none.
    """
    return is_own_mtp(content) or _LAYERS_KEY in _flattened(content)


def is_own_mtp(content: Mapping[str, Any]) -> bool:
    """Whether a config.json is an MTP head's own, not that of a target that ships one."""
    return content.get("architectures") == [MTP_ARCHITECTURE]


def mtp_config_from_json(content: Mapping[str, Any]) -> MtpConfig:
    """Return the head's config.

    Args:
        content: The content of config.json: a head's own, as our trainer writes it, or that of a
            target whose checkpoint holds the head among its tensors.

    Raises:
        CheckpointError: A value is missing or impossible, or names a computation that our head
            does not have. The message starts with the key.
    """
    values = _flattened(content)
    refuse_other_values(values, _FIXED)
    is_own = is_own_mtp(content)
    vocab_size = positive_int(values, "vocab_size")
    return MtpConfig(
        hidden_size=positive_int(values, "hidden_size"),
        intermediate_size=positive_int(values, "intermediate_size"),
        attention=attention_shape(values, num_layers=1),
        # A target's window is that of its own layers.
        window=optional_positive_int(values, "sliding_window") if is_own else None,
        rms_norm_eps=positive_number(values, "rms_norm_eps", default=1e-6),
        has_offset_norms=optional_text(values, "model_type") in _OFFSET_NORMS,
        max_position_embeddings=positive_int(values, "max_position_embeddings"),
        max_draft_length=_max_draft_length(values),
        num_target_layers=optional_positive_int(
            values, "num_target_layers" if is_own else "num_hidden_layers"
        ),
        vocab_size=vocab_size,
        draft_vocab_size=draft_vocab_size(values, vocab_size, MAX_CANDIDATES),
        target_fingerprint=optional_text(values, "target_fingerprint"),
    )


def _flattened(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with what lies nested: a text model's, and what only our files have."""
    values = dict(content)
    for key in ("text_config", "mtp_config"):
        nested = content.get(key) or {}
        if not isinstance(nested, Mapping):
            raise CheckpointError(f"{key} must be an object, got {nested!r}")
        values |= nested
    return values


def _max_draft_length(values: Mapping[str, Any]) -> int:
    length = positive_int(values, "draft_length", default=_USUAL_DRAFT_LENGTH)
    if length >= MAX_BLOCK_SIZE:
        raise CheckpointError(
            f"draft_length is {length}; a chain has 1 to {MAX_BLOCK_SIZE - 1} draft tokens"
        )
    return length

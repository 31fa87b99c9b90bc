"""A model's sizes and constants, read from a Hugging Face config.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dflash.errors import CheckpointError, ConfigError
from dflash.models.config_values import (
    flag,
    optional_token_id,
    positive_int,
    positive_number,
    refuse_other_values,
    rope_theta,
)

_FAMILIES = {"LlamaForCausalLM": "llama"}
# Switches of the Llama family that change the numbers, and the only value our forward computes.
_FIXED = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """What the forward pass and the memory plan need to know of a model.

    Attributes:
        family: Which forward computes it; ``llama``.
        vocab_size: Rows of the embedding table.
        hidden_size: Width of the residual stream.
        num_layers: Decoder layers.
        num_heads: Query heads.
        num_kv_heads: Key/value heads; divides ``num_heads``.
        head_dim: Width of a head; even, because rotary embedding turns pairs.
        intermediate_size: Width inside the MLP.
        rope_theta: Base of the rotary frequencies.
        rms_norm_eps: Added to the mean square in each norm.
        max_position_embeddings: Most positions the model was trained for.
        tie_word_embeddings: Whether the head is the embedding table.
        eos_token_ids: Ids that end a sequence, ascending; may be empty.
        bos_token_id: The id some tokenizers put first.
    """

    family: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    rope_theta: float
    rms_norm_eps: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None


def model_config_from_json(
    content: Mapping[str, Any], generation: Mapping[str, Any] | None = None
) -> ModelConfig:
    """Return the model's config.

    Args:
        content: The content of config.json, in the form of transformers 4 or 5.
        generation: The content of generation_config.json; its end-of-sequence ids are added.

    Raises:
        CheckpointError: A value is missing or impossible, or names a computation that our
            forward does not have. The message starts with the key.
    """
    family = _family(content)
    refuse_other_values(content, _FIXED)
    num_heads = positive_int(content, "num_attention_heads")
    num_kv_heads = positive_int(content, "num_key_value_heads", default=num_heads)
    if num_heads % num_kv_heads:
        raise CheckpointError(
            f"num_key_value_heads is {num_kv_heads}, which does not divide num_attention_heads "
            f"{num_heads}"
        )
    hidden_size = positive_int(content, "hidden_size")
    head_dim = positive_int(content, "head_dim", default=hidden_size // num_heads)
    if head_dim % 2:
        raise CheckpointError(
            f"head_dim is {head_dim}; rotary embedding turns pairs, so it must be even"
        )
    vocab_size = positive_int(content, "vocab_size")
    return ModelConfig(
        family=family,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_layers=positive_int(content, "num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        intermediate_size=positive_int(content, "intermediate_size"),
        rope_theta=rope_theta(content),
        rms_norm_eps=positive_number(content, "rms_norm_eps", default=1e-6),
        max_position_embeddings=positive_int(content, "max_position_embeddings"),
        tie_word_embeddings=flag(content, "tie_word_embeddings"),
        eos_token_ids=_eos_token_ids(content, generation or {}, vocab_size),
        bos_token_id=optional_token_id(content.get("bos_token_id"), "bos_token_id", vocab_size),
    )


def max_model_len(config: ModelConfig, asked: int | None) -> int:
    """Return the most positions a sequence can have.

    Args:
        config: The model's own limit.
        asked: The setting ``engine.max_model_len``.

    Raises:
        ConfigError: The setting exceeds what the model was trained for.
    """
    own = config.max_position_embeddings
    if asked is not None and asked > own:
        raise ConfigError(
            f"engine.max_model_len is {asked}, but the model was trained for {own} positions; "
            f"set it to {own} or less, or leave it out"
        )
    return own if asked is None else asked


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor a checkpoint of this config holds."""
    hidden, inner = config.hidden_size, config.intermediate_size
    query = config.num_heads * config.head_dim
    key_value = config.num_kv_heads * config.head_dim
    layer = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (query, hidden),
        "self_attn.k_proj.weight": (key_value, hidden),
        "self_attn.v_proj.weight": (key_value, hidden),
        "self_attn.o_proj.weight": (hidden, query),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    for index in range(config.num_layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes


def _family(content: Mapping[str, Any]) -> str:
    architectures = content.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else architectures
    if not isinstance(name, str) or name not in _FAMILIES:
        raise CheckpointError(
            f"architectures names {name!r}; this engine computes {', '.join(_FAMILIES)}"
        )
    return _FAMILIES[name]


def _eos_token_ids(
    content: Mapping[str, Any], generation: Mapping[str, Any], vocab_size: int
) -> tuple[int, ...]:
    found = set()
    for mapping in (content, generation):
        value = mapping.get("eos_token_id")
        for item in value if isinstance(value, list) else [value]:
            token_id = optional_token_id(item, "eos_token_id", vocab_size)
            if token_id is not None:
                found.add(token_id)
    return tuple(sorted(found))

"""An MTP head's forwards as programs: one extends its context, the others draft a token each.

All begin with pairs of rows, ``[embedding | hidden]``: what the target's first layer reads of a
token, and the state before it. The pair of position p is made of token p and of what the target
held at p - 1, so it depends on no token after p, and lies in the pages where the target's own keys
of p lie. The first token has no state before it and no pair. The published head counts the same
pair as position p - 1: turned by one position more, queries and keys meet alike.
"""

from dataclasses import replace

from dflash.drafters.borrowed import borrowed_names, final_norm
from dflash.drafters.mtp_config import MtpConfig
from dflash.drafters.names import LOGITS, OWN
from dflash.program import (
    Attend,
    Buffer,
    Epilogue,
    Features,
    HeadNorm,
    Linear,
    Operation,
    Program,
    RmsNorm,
    RotateAndStore,
)

STATE = "state"
_PREFIX = f"{OWN}mtp"
_LAYER = f"{_PREFIX}.layers.0"
_FIRST_PAIR = 1


def mtp_programs(config: MtpConfig, target: Program) -> tuple[Program, Program, Program]:
    """Return the three forwards of a head: context, first link and next link.

    Args:
        config: The head's.
        target: The target's forward.
    """
    head, norm = borrowed_names(config, target).head, final_norm(target)
    return (
        context_program(config, norm),
        link_program(config, head, norm),
        link_program(config, head),
    )


def context_program(config: MtpConfig, final_norm: RmsNorm) -> Program:
    """Return the forward that turns pairs of committed tokens into keys and values.

    Args:
        config: The head's.
        final_norm: The target's; the pairs hold what its last layer gave.
    """
    attention = replace(config.attention, num_heads=0)
    projections = tuple(f"{_LAYER}.self_attn.{part}_proj.weight" for part in "kv")
    k_norm = f"{_LAYER}.self_attn.k_norm.weight"
    return Program(
        operations=(
            *_mixed(config, final_norm),
            Linear("normed", projections, "keys"),
            HeadNorm("keys", k_norm, 0, attention.num_kv_heads, config.rms_norm_eps),
            RotateAndStore("keys", 0),
        ),
        buffers=_mixed_buffers(config) | {"keys": Buffer(attention.qkv_width)},
        attention=attention,
        outputs=(),
    )


def link_program(config: MtpConfig, head: str, final_norm: RmsNorm | None = None) -> Program:
    """Return the forward of one link of a chain: the logits of a draft token, and the state.

    Args:
        config: The head's.
        head: Name of the matrix of the logits.
        final_norm: The target's, in a chain's first link: the pairs hold what the target's last
            layer gave. None in later links, whose pairs hold the state of the link before.

    Source:
        The MTP layers of the published Qwen3-Next and Qwen3.5 checkpoints; arXiv:2412.19437,
        section 2.2 (chained modules).
    """
    heads, eps = config.attention, config.rms_norm_eps
    projections = tuple(f"{_LAYER}.self_attn.{part}_proj.weight" for part in "qkv")
    gate_up = tuple(f"{_LAYER}.mlp.{part}_proj.weight" for part in ("gate", "up"))
    q_norm, k_norm = (f"{_LAYER}.self_attn.{part}_norm.weight" for part in "qk")
    return Program(
        operations=(
            *_mixed(config, final_norm),
            Linear("normed", projections, "qkv"),
            HeadNorm("qkv", q_norm, 0, heads.num_heads, eps),
            HeadNorm("qkv", k_norm, heads.num_heads, heads.num_kv_heads, eps),
            RotateAndStore("qkv", 0),
            Attend("qkv", "attended", 0, _FIRST_PAIR, config.window),
            Linear("attended", (f"{_LAYER}.self_attn.o_proj.weight",), "residual", Epilogue.ADD),
            RmsNorm("residual", f"{_LAYER}.post_attention_layernorm.weight", "normed", eps),
            Linear("normed", gate_up, "gated", Epilogue.SILU_MUL),
            Linear("gated", (f"{_LAYER}.mlp.down_proj.weight",), "residual", Epilogue.ADD),
            RmsNorm("residual", f"{_PREFIX}.norm.weight", STATE, eps),
            Linear(STATE, (head,), LOGITS, Epilogue.FLOAT32),
        ),
        buffers=_mixed_buffers(config)
        | {
            "qkv": Buffer(heads.qkv_width),
            "attended": Buffer(heads.num_heads * heads.head_dim),
            "gated": Buffer(config.intermediate_size),
            STATE: Buffer(config.hidden_size),
            LOGITS: Buffer(config.draft_vocab_size, is_float32=True),
        },
        attention=heads,
        outputs=(LOGITS, STATE),
    )


def _mixed(config: MtpConfig, final_norm: RmsNorm | None) -> list[Operation]:
    """Return what turns pairs into the layer's normed input."""
    eps = config.rms_norm_eps
    operations: list[Operation] = [Features("pair")]
    if final_norm is not None:
        operations.append(HeadNorm("pair", final_norm.weight, 1, 1, final_norm.eps))
    return [
        *operations,
        HeadNorm("pair", f"{_PREFIX}.pre_fc_norm_embedding.weight", 0, 1, eps),
        HeadNorm("pair", f"{_PREFIX}.pre_fc_norm_hidden.weight", 1, 1, eps),
        Linear("pair", (f"{_PREFIX}.fc.weight",), "residual"),
        RmsNorm("residual", f"{_LAYER}.input_layernorm.weight", "normed", eps),
    ]


def _mixed_buffers(config: MtpConfig) -> dict[str, Buffer]:
    hidden = config.hidden_size
    return {"pair": Buffer(2 * hidden), "residual": Buffer(hidden), "normed": Buffer(hidden)}

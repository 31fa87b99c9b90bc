"""A DFlash drafter's two forwards as programs: one extends its context, one fills a draft block."""

from dataclasses import replace

from dflash.drafters.config import CONV_GROUP, CONV_TAPS, DFlashConfig
from dflash.drafters.layer_kinds import LayerKind
from dflash.drafters.names import LOGITS, OWN, BorrowedNames
from dflash.program import (
    AttendBlock,
    Buffer,
    Convolve,
    Embed,
    Epilogue,
    Features,
    HeadNorm,
    Linear,
    Operation,
    Program,
    RmsNorm,
    RotateAndStore,
    RotateAndStoreBlock,
    Rows,
    Select,
)

SELECTOR_STATE = "selector_state"
_NUM_SIDES = 2  # of a convolution


def context_program(config: DFlashConfig) -> Program:
    """Return the forward that turns target features into the keys and values of every layer.

    Positions are those of the tokens the features belong to. Nothing of it runs through the
    drafter's queries or MLP, so no layer waits for the one below.

    Source:
        arXiv:2602.06036, appendix A.3.
    """
    eps = config.rms_norm_eps
    attention = replace(config.attention, num_heads=0)
    operations: list[Operation] = [
        Features("features"),
        Linear("features", (f"{OWN}fc.weight",), "projected"),
        RmsNorm("projected", f"{OWN}hidden_norm.weight", "context", eps),
    ]
    for layer in range(attention.num_layers):
        prefix = f"{OWN}layers.{layer}.self_attn"
        operations += [
            Linear("context", tuple(f"{prefix}.{part}_proj.weight" for part in "kv"), "keys"),
            HeadNorm("keys", f"{prefix}.k_norm.weight", 0, attention.num_kv_heads, eps),
            RotateAndStore("keys", layer),
        ]
    return Program(
        operations=tuple(operations),
        buffers={
            "features": Buffer(len(config.target_layer_ids) * config.hidden_size),
            "projected": Buffer(config.hidden_size),
            "context": Buffer(config.hidden_size),
            "keys": Buffer(attention.qkv_width),
        },
        attention=attention,
        outputs=(),
    )


def block_program(config: DFlashConfig, borrowed: BorrowedNames) -> Program:
    """Return the forward of draft blocks, from token ids to the logits of the wanted slots.

    In version 2 every sublayer stands between the two sides of a convolution, whose kernels come
    from its normed input; and the selector's view of each slot comes out beside the logits.

    Source:
        arXiv:2602.06036 (version 1); the published checkpoints of DFlash 2.
    """
    operations: list[Operation] = [Embed(borrowed.embedding, "residual")]
    for layer, kind in enumerate(config.layers):
        operations += _attention(config, layer, kind) + _mlp(config, layer)
    operations += [
        Select("residual", "wanted"),
        RmsNorm("wanted", f"{OWN}norm.weight", "wanted_normed", config.rms_norm_eps),
        Linear("wanted_normed", (borrowed.head,), LOGITS, Epilogue.FLOAT32),
    ]
    outputs: tuple[str, ...] = (LOGITS,)
    if config.selector_rank:
        weights = (f"{OWN}candidate_selector.hidden_projection.weight",)
        operations.append(Linear("wanted_normed", weights, SELECTOR_STATE, Epilogue.FLOAT32))
        outputs += (SELECTOR_STATE,)
    return Program(tuple(operations), _block_buffers(config), config.attention, outputs)


def _attention(config: DFlashConfig, layer: int, kind: LayerKind) -> list[Operation]:
    prefix = f"{OWN}layers.{layer}"
    heads, eps = config.attention, config.rms_norm_eps
    projections = tuple(f"{prefix}.self_attn.{part}_proj.weight" for part in "qkv")
    q_norm, k_norm = (f"{prefix}.self_attn.{part}_norm.weight" for part in "qk")
    return [
        RmsNorm("residual", f"{prefix}.input_layernorm.weight", "normed", eps),
        *_convolved_input(config, f"{prefix}.attention_conv"),
        Linear(_input_of_sublayers(config), projections, "qkv"),
        HeadNorm("qkv", q_norm, 0, heads.num_heads, eps),
        HeadNorm("qkv", k_norm, heads.num_heads, heads.num_kv_heads, eps),
        RotateAndStoreBlock("qkv", layer),
        AttendBlock("qkv", "attended", layer, kind.window, kind.is_causal),
        *_added(config, "attended", f"{prefix}.self_attn.o_proj", f"{prefix}.attention_conv"),
    ]


def _mlp(config: DFlashConfig, layer: int) -> list[Operation]:
    prefix = f"{OWN}layers.{layer}"
    gate_up = tuple(f"{prefix}.mlp.{part}_proj.weight" for part in ("gate", "up"))
    norm = f"{prefix}.post_attention_layernorm.weight"
    return [
        RmsNorm("residual", norm, "normed", config.rms_norm_eps),
        *_convolved_input(config, f"{prefix}.mlp_conv"),
        Linear(_input_of_sublayers(config), gate_up, "gated", Epilogue.SILU_MUL),
        *_added(config, "gated", f"{prefix}.mlp.down_proj", f"{prefix}.mlp_conv"),
    ]


def _input_of_sublayers(config: DFlashConfig) -> str:
    return "normed" if config.version == 1 else "convolved"


def _convolved_input(config: DFlashConfig, convolution: str) -> list[Operation]:
    """Return what stands between a norm and its sublayer; the kernels serve both sides."""
    if config.version == 1:
        return []
    return [
        Linear("normed", (f"{convolution}.kernel_projection.weight",), "kernel"),
        Convolve("normed", "kernel", f"{convolution}.base_kernel", "convolved", side=0),
    ]


def _added(config: DFlashConfig, src: str, projection: str, convolution: str) -> list[Operation]:
    """Return the end of a sublayer: its last product, added to the residual."""
    weights = (f"{projection}.weight",)
    if config.version == 1:
        return [Linear(src, weights, "residual", Epilogue.ADD)]
    base = f"{convolution}.base_kernel"
    return [
        Linear(src, weights, "sublayer"),
        Convolve("sublayer", "kernel", base, "residual", side=1, epilogue=Epilogue.ADD),
    ]


def _block_buffers(config: DFlashConfig) -> dict[str, Buffer]:
    hidden, attention = config.hidden_size, config.attention
    buffers = {
        "residual": Buffer(hidden),
        "normed": Buffer(hidden),
        "qkv": Buffer(attention.qkv_width),
        "attended": Buffer(attention.num_heads * attention.head_dim),
        "gated": Buffer(config.intermediate_size),
        "wanted": Buffer(hidden, Rows.LOGITS),
        "wanted_normed": Buffer(hidden, Rows.LOGITS),
        LOGITS: Buffer(config.draft_vocab_size, Rows.LOGITS, is_float32=True),
    }
    if config.version == 2:
        buffers |= {
            "kernel": Buffer(_NUM_SIDES * CONV_TAPS * hidden // CONV_GROUP),
            "convolved": Buffer(hidden),
            "sublayer": Buffer(hidden),
            SELECTOR_STATE: Buffer(config.selector_rank, Rows.LOGITS, is_float32=True),
        }
    return buffers

"""The Llama family's forward as a program."""

from dflash.models.config import ModelConfig
from dflash.program import (
    EMBEDDING_TAP,
    Attend,
    AttentionShape,
    Buffer,
    Embed,
    Epilogue,
    Linear,
    Operation,
    Program,
    RmsNorm,
    RotateAndStore,
    Rows,
    Select,
    Tap,
)


def llama_program(config: ModelConfig) -> Program:
    """Return the forward of a Llama checkpoint, with a tap before the first layer and after each.

    Source:
        arXiv:2302.13971 (pre-norm, rotary positions, gated MLP), arXiv:2305.13245 (grouped
        queries); tensor names as published in safetensors checkpoints.
    """
    attention = AttentionShape(
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        rope_theta=config.rope_theta,
        num_layers=config.num_layers,
    )
    embedding = "model.embed_tokens.weight"
    operations: list[Operation] = [
        Embed(embedding, "residual"),
        Tap("residual", EMBEDDING_TAP),
    ]
    for layer in range(config.num_layers):
        operations += _decoder_layer(layer, config.rms_norm_eps)
    operations += [
        Select("residual", "last"),
        RmsNorm("last", "model.norm.weight", "last_normed", config.rms_norm_eps),
        Linear(
            "last_normed",
            (embedding if config.tie_word_embeddings else "lm_head.weight",),
            "logits",
            Epilogue.FLOAT32,
        ),
    ]
    return Program(
        operations=tuple(operations),
        buffers={
            "residual": Buffer(config.hidden_size),
            "normed": Buffer(config.hidden_size),
            "qkv": Buffer(attention.qkv_width),
            "attended": Buffer(config.num_heads * config.head_dim),
            "gated": Buffer(config.intermediate_size),
            "last": Buffer(config.hidden_size, Rows.LOGITS),
            "last_normed": Buffer(config.hidden_size, Rows.LOGITS),
            "logits": Buffer(config.vocab_size, Rows.LOGITS, is_float32=True),
        },
        attention=attention,
        outputs=("logits",),
    )


def _decoder_layer(layer: int, eps: float) -> list[Operation]:
    prefix = f"model.layers.{layer}"
    heads = tuple(f"{prefix}.self_attn.{part}_proj.weight" for part in ("q", "k", "v"))
    gate_up = tuple(f"{prefix}.mlp.{part}_proj.weight" for part in ("gate", "up"))
    return [
        RmsNorm("residual", f"{prefix}.input_layernorm.weight", "normed", eps),
        Linear("normed", heads, "qkv"),
        RotateAndStore("qkv", layer),
        Attend("qkv", "attended", layer),
        Linear("attended", (f"{prefix}.self_attn.o_proj.weight",), "residual", Epilogue.ADD),
        RmsNorm("residual", f"{prefix}.post_attention_layernorm.weight", "normed", eps),
        Linear("normed", gate_up, "gated", Epilogue.SILU_MUL),
        Linear("gated", (f"{prefix}.mlp.down_proj.weight",), "residual", Epilogue.ADD),
        Tap("residual", layer),
    ]

"""A drafter's config.json: every published one is read or refused by name."""

import pytest

from dflash.drafters.config import dflash_config_from_json
from dflash.drafters.layer_kinds import LayerKind
from dflash.errors import CheckpointError
from tests.rigs.published_drafters import (
    FULL,
    GPT_OSS,
    MIMO,
    MUSE_30B_V2,
    PUBLISHED,
    QWEN3_4B,
    QWEN36_27B,
    QWEN38_27B_V2,
    SLIDING,
    SPECULATORS,
)


def changed(content: dict, **nested) -> dict:
    return content | {"dflash_config": content["dflash_config"] | nested}


def without(content: dict, *keys: str) -> dict:
    return {key: value for key, value in content.items() if key not in keys}


def refusal_of(content: dict) -> str:
    with pytest.raises(CheckpointError) as refusal:
        dflash_config_from_json(content)
    return str(refusal.value)


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_config_is_read(name):
    content, version, block, mask, taps, rank = PUBLISHED[name]

    config = dflash_config_from_json(content)

    assert (config.version, config.block_size, config.mask_token_id) == (version, block, mask)
    assert (config.target_layer_ids, config.selector_rank) == (taps, rank)
    assert config.num_candidates == 16
    assert config.input_embedding_scale == 1.0
    assert not config.is_reduced


def test_sizes_and_constants_are_taken_over_as_they_are():
    config = dflash_config_from_json(MUSE_30B_V2)

    heads = config.attention
    assert (heads.num_heads, heads.num_kv_heads, heads.head_dim, heads.num_layers) == (
        32,
        8,
        128,
        5,
    )
    assert (config.hidden_size, config.intermediate_size) == (6656, 19968)
    assert (heads.rope_theta, config.rms_norm_eps) == (500000.0, 1e-5)
    assert config.max_position_embeddings == 131072
    assert (config.vocab_size, config.num_target_layers) == (202048, 52)
    assert config.output_multiplier == 0.19611613513818404
    assert config.final_logit_softcapping == 20.0


def test_defaults_are_those_of_the_reference():
    config = dflash_config_from_json(without(QWEN3_4B, "block_size", "layer_types"))

    assert config.block_size == 16
    assert config.layers == (LayerKind(None, False),) * 5
    assert (config.output_multiplier, config.final_logit_softcapping) == (1.0, None)
    assert config.target_fingerprint is None


@pytest.mark.parametrize(
    ("num_target_layers", "num_layers", "taps"),
    [(30, 5, (1, 8, 14, 20, 27)), (36, 5, (1, 9, 17, 25, 33)), (64, 5, (1, 16, 31, 46, 61)),
     (30, 1, (15,))],
)  # fmt: skip
def test_taps_that_no_key_names_are_spread_by_rule(num_target_layers, num_layers, taps):
    content = QWEN3_4B | {
        "num_target_layers": num_target_layers,
        "num_hidden_layers": num_layers,
        "layer_types": [FULL] * num_layers,
        "dflash_config": {"mask_token_id": 151669},
    }

    assert dflash_config_from_json(content).target_layer_ids == taps


def test_a_value_in_dflash_config_wins_over_one_at_the_top():
    content = changed(QWEN3_4B | {"mask_token_id": 5}, block_size=8)

    config = dflash_config_from_json(content)

    assert (config.block_size, config.mask_token_id) == (8, 151669)


def test_a_null_in_dflash_config_leaves_the_value_at_the_top():
    assert dflash_config_from_json(changed(QWEN3_4B, block_size=None)).block_size == 16


@pytest.mark.parametrize(
    "key", ["mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id"]
)
def test_the_mask_is_found_under_each_of_its_names(key):
    content = QWEN3_4B | {"dflash_config": {"target_layer_ids": [1, 2]}, key: 77}

    assert dflash_config_from_json(content).mask_token_id == 77


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (QWEN38_27B_V2, [(2048, False)] * 5),
        (QWEN36_27B, [(2048, True)] * 4 + [(None, False)]),
        (QWEN36_27B | {"is_causal": False}, [(2048, False)] * 4 + [(None, False)]),
        (QWEN36_27B | {"is_causal": True}, [(2048, True)] * 4 + [(None, True)]),
        (changed(QWEN36_27B, causal=False), [(2048, False)] * 4 + [(None, False)]),
        (changed(QWEN36_27B | {"is_causal": True}, causal=False),
         [(2048, True)] * 4 + [(None, True)]),
        (changed(QWEN3_4B, use_swa=True, swa_window_size=1024), [(1024, False)] * 5),
        (SPECULATORS, [(2048, False)] * 4 + [(None, False)]),
        (SPECULATORS | {"sliding_window_non_causal": False},
         [(2048, True)] * 4 + [(None, False)]),
    ],
)  # fmt: skip
def test_windows_and_causality_follow_their_order_of_precedence(content, expected):
    layers = dflash_config_from_json(content).layers

    assert [(layer.window, layer.is_causal) for layer in layers] == expected


def test_speculators_count_taps_from_one_and_take_their_sizes_from_within():
    config = dflash_config_from_json(SPECULATORS | {"draft_vocab_size": 32000})

    assert config.target_layer_ids == (1, 16, 31, 46, 61)
    assert (config.hidden_size, config.vocab_size) == (5120, 248320)
    assert config.is_reduced
    assert config.draft_vocab_size == 32000


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (GPT_OSS, ["rope_scaling.rope_type", "yarn"]),
        (MIMO, ["attention_sink_bias", "sinks"]),
        (without(MIMO, "attention_sink_bias"), ["attention_value_scale", "0.612"]),
        (QWEN3_4B | {"aux_hidden_norms": True}, ["aux_hidden_norms"]),
        (QWEN3_4B | {"has_own_lm_head": True}, ["has_own_lm_head", "head"]),
        (QWEN3_4B | {"attention_bias": True}, ["attention_bias"]),
        (QWEN3_4B | {"is_neox_style": False}, ["is_neox_style"]),
        (QWEN3_4B | {"rope_is_neox_style": False}, ["rope_is_neox_style"]),
        (QWEN3_4B | {"partial_rotary_factor": 0.25}, ["partial_rotary_factor", "0.25"]),
        (QWEN3_4B | {"hidden_act": "gelu"}, ["hidden_act", "gelu"]),
        (QWEN3_4B | {"quantization_config": {"quant_method": "awq"}}, ["quantization_config"]),
        (QWEN3_4B | {"architectures": ["Qwen3DSparkModel"]}, ["architectures", "Qwen3DSpark"]),
        (QWEN3_4B | {"target_hidden_size": 4096}, ["target_hidden_size", "4096"]),
        (QWEN3_4B | {"head_dim": 80}, ["head_dim", "80"]),
        (QWEN3_4B | {"head_dim": 512}, ["head_dim", "512"]),
        (QWEN3_4B | {"num_key_value_heads": 5}, ["num_key_value_heads", "5"]),
        (QWEN3_4B | {"block_size": 17}, ["block_size", "17", "16"]),
        (QWEN3_4B | {"block_size": 1}, ["block_size", "1"]),
        (QWEN3_4B | {"block_size": "8"}, ["block_size", "'8'"]),
        (changed(QWEN3_4B, target_layer_ids=[]), ["target_layer_ids"]),
        (changed(QWEN3_4B, target_layer_ids=[-1, 3]), ["target_layer_ids", "-1"]),
        (changed(QWEN3_4B, target_layer_ids=[0, 0]), ["target_layer_ids", "[0, 0]"]),
        (without(QWEN3_4B, "dflash_config") | {"mask_token_id": 0, "num_target_layers": 3},
         ["target_layer_ids"]),
        (QWEN3_4B | {"num_hidden_layers": 10**9}, ["num_hidden_layers"]),
        (changed(QWEN3_4B, target_layer_ids="all"), ["target_layer_ids", "all"]),
        (changed(QWEN3_4B, mask_token_id=151936), ["mask_token_id", "151936"]),
        (changed(QWEN3_4B, mask_token_id=None), ["mask_token_id", "missing"]),
        (QWEN3_4B | {"draft_vocab_size": 151937}, ["draft_vocab_size", "151937"]),
        (QWEN3_4B | {"draft_vocab_size": 15}, ["draft_vocab_size", "15"]),
        (QWEN3_4B | {"layer_types": [FULL] * 4}, ["layer_types"]),
        (QWEN3_4B | {"layer_types": ["linear_attention"] * 5}, ["layer_types", "linear"]),
        (QWEN3_4B | {"layer_types": [SLIDING] * 5}, ["sliding_window"]),
        (QWEN38_27B_V2 | {"use_sliding_window": False}, ["use_sliding_window"]),
        (QWEN3_4B | {"is_causal": "no"}, ["is_causal", "no"]),
        (QWEN3_4B | {"dflash_config": 3}, ["dflash_config", "3"]),
        (QWEN3_4B | {"output_multiplier": 0}, ["output_multiplier", "0"]),
        (QWEN3_4B | {"final_logit_softcapping": -1.0}, ["final_logit_softcapping", "-1"]),
        (changed(QWEN3_4B, target_fingerprint=7), ["target_fingerprint", "7"]),
        (changed(QWEN38_27B_V2, conv_kernel_size=3), ["conv_kernel_size", "3", "2"]),
        (changed(QWEN38_27B_V2, conv_group_size=32), ["conv_group_size", "32", "16"]),
        (changed(QWEN38_27B_V2, conv_kernel_size=None), ["conv_kernel_size", "None"]),
        (changed(QWEN38_27B_V2, selector_rank=0), ["selector_rank", "0"]),
        (changed(QWEN38_27B_V2, selector_top_k=32), ["selector_top_k", "32", "16"]),
        (changed(QWEN38_27B_V2, selector_top_k=None), ["selector_top_k", "None"]),
        (changed(QWEN3_4B, selector_rank=256), ["selector_rank", "256", "DFlash2DraftModel"]),
        (changed(QWEN3_4B, conv_kernel_size=2), ["conv_kernel_size", "2", "DFlash2DraftModel"]),
        (SPECULATORS | {"speculators_model_type": "eagle3"}, ["speculators_model_type", "eagle3"]),
        (SPECULATORS | {"aux_hidden_state_layer_ids": [0, 4]}, ["aux_hidden_state_layer_ids"]),
        (SPECULATORS | {"sample_from_anchor": True}, ["sample_from_anchor"]),
        (SPECULATORS | {"transformer_layer_config": None}, ["transformer_layer_config"]),
    ],
)  # fmt: skip
def test_what_is_not_computed_is_refused_by_name(content, words):
    message = refusal_of(content)

    assert all(word in message for word in words), message


@pytest.mark.parametrize("key", sorted(set(QWEN38_27B_V2["dflash_config"]) - {"block_size"}))
def test_settings_of_the_wrong_type_are_refused_by_name(key):
    assert key in refusal_of(changed(QWEN38_27B_V2, **{key: "many"}))


@pytest.mark.parametrize(
    "key",
    ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
     "vocab_size", "max_position_embeddings"],
)  # fmt: skip
def test_sizes_that_are_missing_are_refused_by_name(key):
    assert refusal_of(without(QWEN3_4B, key)).startswith(key)

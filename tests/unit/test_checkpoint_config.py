import pytest

from dflash.errors import CheckpointError, ConfigError
from dflash.models.config import max_model_len, model_config_from_json
from tests.rigs.tiny_checkpoint import TINY_CONFIG


def test_both_forms_of_the_rotary_base_are_read():
    flat = TINY_CONFIG | {"rope_theta": 5e5}
    nested = {k: v for k, v in TINY_CONFIG.items() if k != "rope_theta"} | {
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}
    }

    assert model_config_from_json(flat).rope_theta == 5e5
    assert model_config_from_json(flat | {"rope_scaling": None}).rope_theta == 5e5
    assert model_config_from_json(nested) == model_config_from_json(flat)


def test_end_of_sequence_ids_of_both_files_are_merged():
    config = model_config_from_json(TINY_CONFIG | {"eos_token_id": 7}, {"eos_token_id": [3, 7, 5]})

    assert config.eos_token_ids == (3, 5, 7)


def test_a_model_without_an_end_of_sequence_id_has_none():
    assert model_config_from_json(TINY_CONFIG | {"eos_token_id": None}).eos_token_ids == ()


def test_sizes_that_a_config_leaves_out_follow_from_the_others():
    config = dict(TINY_CONFIG)
    del config["head_dim"], config["num_key_value_heads"]

    read = model_config_from_json(config)

    assert (read.head_dim, read.num_kv_heads) == (32, 2)


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("architectures", ["MixtralForCausalLM"], "MixtralForCausalLM"),
        ("architectures", None, "LlamaForCausalLM"),
        ("architectures", [["LlamaForCausalLM"]], "LlamaForCausalLM"),
        ("hidden_act", "gelu", "silu"),
        ("attention_bias", True, "False"),
        ("mlp_bias", True, "False"),
        ("quantization_config", {"quant_method": "awq"}, "awq"),
        ("rope_scaling", {"rope_type": "llama3", "factor": 8.0}, "llama3"),
        ("rope_scaling", {"type": "linear", "factor": 2.0}, "linear"),
        ("rope_parameters", {"rope_type": "yarn", "rope_theta": 1e4}, "yarn"),
        ("rope_parameters", {"partial_rotary_factor": 0.5}, "0.5"),
        ("rope_parameters", [1], "[1]"),
        ("head_dim", 33, "33"),
        ("num_key_value_heads", 3, "3"),
        ("vocab_size", 0, "0"),
        ("vocab_size", "48", "'48'"),
        ("hidden_size", -64, "-64"),
        ("hidden_size", True, "True"),
        ("num_hidden_layers", None, "None"),
        ("max_position_embeddings", 1.5, "1.5"),
        ("rms_norm_eps", float("nan"), "nan"),
        ("rope_theta", float("inf"), "inf"),
        ("tie_word_embeddings", "yes", "'yes'"),
        ("eos_token_id", 48, "48"),
        ("eos_token_id", [1, -1], "-1"),
        ("bos_token_id", "a", "'a'"),
    ],
)
def test_a_config_we_do_not_compute_is_refused_with_its_key_and_value(key, value, shown):
    with pytest.raises(CheckpointError) as refusal:
        model_config_from_json(TINY_CONFIG | {key: value})

    assert str(refusal.value).startswith(key)
    assert shown in str(refusal.value)


def test_a_longer_sequence_than_the_model_was_trained_for_is_refused():
    config = model_config_from_json(TINY_CONFIG)

    assert max_model_len(config, None) == 128
    assert max_model_len(config, 128) == 128
    with pytest.raises(ConfigError, match=r"engine\.max_model_len is 129.*128 or less"):
        max_model_len(config, 129)

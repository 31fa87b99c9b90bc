"""An MTP head's files: what is read of them, what is refused, and which target they are for."""

import json

import pytest
import torch
from safetensors.torch import save_file

from benchmarks.rigs.tiny_mtp import TinyMtp, tiny_mtp_json, tiny_mtp_tensors, write_tiny_mtp
from dflash.config import Dtype, EngineLimits
from dflash.drafters.binding import open_bound_drafter
from dflash.drafters.checkpoint import drafter_tensor_shapes, open_drafter_checkpoint
from dflash.drafters.mtp_config import mtp_config_from_json
from dflash.drafters.sizes import drafter_sizes
from dflash.errors import CheckpointError
from dflash.models.config import model_config_from_json
from dflash.models.registry import program_for
from tests.rigs.tiny_checkpoint import TINY_CONFIG, tiny_tensors

TARGET = model_config_from_json(TINY_CONFIG)
KIND = TinyMtp(window=20, draft_vocab_size=24)
CONTENT = tiny_mtp_json(KIND, TARGET)
# What a target says of itself where its own checkpoint holds the head.
OF_TARGET = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "text_config": {
        "model_type": "qwen3_5_text",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 8,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "layer_types": ["linear_attention", "full_attention"] * 4,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "sliding_window": 1024,
        "vocab_size": 48,
        "mtp_num_hidden_layers": 1,
    },
}


def test_a_heads_own_file_says_all_that_is_needed():
    config = mtp_config_from_json(CONTENT)

    assert (config.hidden_size, config.intermediate_size) == (64, 96)
    assert (config.attention.num_heads, config.attention.num_layers) == (2, 1)
    assert (config.window, config.max_draft_length) == (20, 4)
    assert (config.vocab_size, config.draft_vocab_size, config.is_reduced) == (48, 24, True)
    assert (config.num_target_layers, config.target_fingerprint) == (2, None)
    assert not config.has_offset_norms


def test_a_targets_own_config_says_it_of_the_head_among_its_tensors(tmp_path):
    config = mtp_config_from_json(OF_TARGET)
    tensors = tiny_mtp_tensors(OF_TARGET)
    assert len(tensors) == 15
    # The target's tensors lie beside the head's; a folder of both opens as a drafter.
    save_file(tensors | tiny_tensors(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(OF_TARGET))

    assert config.has_offset_norms
    # The window is that of the target's layers, its head sees all.
    assert config.window is None
    assert (config.num_target_layers, config.max_draft_length) == (8, 3)
    opened = open_drafter_checkpoint(tmp_path)
    assert opened.config == config
    assert opened.stored_names.keys() == tensors.keys()


def test_the_published_shapes_of_the_27b_head():
    sizes = {
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 248320,
    }
    shapes = drafter_tensor_shapes(
        mtp_config_from_json({"text_config": OF_TARGET["text_config"] | sizes})
    )

    assert len(shapes) == 15
    assert shapes["mtp.fc.weight"] == (5120, 10240)
    assert shapes["mtp.layers.0.self_attn.k_proj.weight"] == (1024, 5120)
    assert shapes["mtp.layers.0.self_attn.o_proj.weight"] == (5120, 6144)
    assert shapes["mtp.layers.0.self_attn.q_norm.weight"] == (256,)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": None}, "hidden_size must be a positive whole number"),
        ({"intermediate_size": 0}, "intermediate_size"),
        ({"head_dim": 40}, "head_dim is 40"),
        ({"num_key_value_heads": 3}, "num_key_value_heads 3"),
        ({"mtp_num_hidden_layers": 2}, "mtp_num_hidden_layers is 2; this engine computes 1 only"),
        ({"mtp_num_hidden_layers": True}, "mtp_num_hidden_layers is True"),
        ({"model_type": []}, "model_type must be a text"),
        ({"attn_output_gate": True}, "attn_output_gate is True"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"partial_rotary_factor": 0.25}, "partial_rotary_factor is 0.25"),
        ({"mtp_use_dedicated_embeddings": True}, "mtp_use_dedicated_embeddings is True"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters.rope_type is 'yarn'"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config is set"),
        ({"sliding_window": 0}, "sliding_window"),
        ({"draft_vocab_size": 15}, "draft_vocab_size is 15"),
        ({"draft_vocab_size": 49}, "draft_vocab_size is 49"),
        ({"mtp_config": {"draft_length": 0}}, "draft_length must be a positive whole number"),
        ({"mtp_config": {"draft_length": 16}}, "draft_length is 16; a chain has 1 to 15"),
        ({"mtp_config": {"target_fingerprint": 3}}, "target_fingerprint must be a text"),
        ({"mtp_config": [3]}, "mtp_config must be an object"),
        ({"text_config": "none"}, "text_config must be an object"),
    ],
)
def test_a_config_that_cannot_be_computed_is_refused_with_its_key(tmp_path, change, words):
    folder = write_tiny_mtp(tmp_path, KIND, TARGET, tensors=tiny_mtp_tensors(CONTENT))
    (folder / "config.json").write_text(json.dumps(CONTENT | change))

    with pytest.raises(CheckpointError) as refusal:
        open_drafter_checkpoint(folder)
    assert words in str(refusal.value)
    assert str(folder) in str(refusal.value)


def opened_with(folder, change):
    tensors = tiny_mtp_tensors(CONTENT)
    change(tensors)
    checkpoint = open_drafter_checkpoint(write_tiny_mtp(folder, KIND, TARGET, tensors=tensors))
    checkpoint.target_ids()
    for name in tensors:
        checkpoint.tensor(name)


def lose(tensors):
    del tensors["mtp.fc.weight"]


def turn(tensors):
    tensors["mtp.fc.weight"] = tensors["mtp.fc.weight"].T.contiguous()


def spoil(tensors):
    tensors["mtp.norm.weight"][3] = torch.nan


def add(tensors):
    tensors["mtp.layers.1.input_layernorm.weight"] = torch.ones(64)


def add_foreign(tensors):
    tensors["layers.0.gate.weight"] = torch.ones(64)


def lose_map(tensors):
    del tensors["d2t"]


def fold_map(tensors):
    tensors["d2t"][5] = 40


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lose, "lacks mtp.fc.weight"),
        (turn, r"mtp.fc.weight has shape \[128, 64\], its config.json says \[64, 128\]"),
        (spoil, "mtp.norm.weight holds infinite or undefined weights"),
        (add, "mtp.layers.1.input_layernorm.weight, which this engine's MTP drafter would leave"),
        (add_foreign, "also holds layers.0.gate.weight"),
        (lose_map, "lacks d2t"),
        (fold_map, "d2t maps draft ids"),
    ],
)
def test_tensors_that_are_missing_misshapen_or_not_finite_are_named(tmp_path, change, words):
    opened_with(tmp_path / "right", lambda tensors: None)
    with pytest.raises(CheckpointError, match=words):
        opened_with(tmp_path / "wrong", change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": 128, "head_dim": 32}, "hidden_size 64, this target's is 128"),
        ({"vocab_size": 64}, "vocab_size 48, this target's is 64"),
        ({"num_hidden_layers": 3}, "num_target_layers 2, this target's is 3"),
    ],
)
def test_another_targets_head_is_refused_with_both_values(tmp_path, change, words):
    folder = write_tiny_mtp(tmp_path, KIND, TARGET)

    assert open_bound_drafter(folder, TARGET, "").config.kind == "MTP"
    with pytest.raises(CheckpointError, match=words):
        open_bound_drafter(folder, model_config_from_json(TINY_CONFIG | change), "")


def test_a_fingerprint_binds_to_one_checkpoint(tmp_path):
    content = CONTENT | {"mtp_config": {"target_fingerprint": "abc"}}
    folder = write_tiny_mtp(tmp_path, KIND, TARGET, content)

    assert open_bound_drafter(folder, TARGET, "abc").config.target_fingerprint == "abc"
    with pytest.raises(CheckpointError, match="target_fingerprint abc, this target's is def"):
        open_bound_drafter(folder, TARGET, "def")


def test_a_heads_sizes_are_those_of_its_tensors_and_its_pages():
    config = mtp_config_from_json(CONTENT)
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=64)

    sizes = drafter_sizes(config, program_for(TARGET), limits, Dtype.BFLOAT16, 128)

    elements = sum(t.numel() for name, t in tiny_mtp_tensors(CONTENT).items() if name != "d2t")
    # Keys and values are packed for the context and for the links, and 24 rows of the head.
    elements += 2 * 32 * 64 + 24 * 64
    assert sizes.weights_bytes == elements * 2 + 128 * 32 * 4
    # Key and value of one head of 32, and the target's state of 64, for each of 16 tokens.
    assert sizes.page_bytes == 16 * (2 * 32 + 64) * 2
    assert sizes.num_scratch_pages == 0
    # A pair, the residual stream, its norm and the narrow products, of a token each; a link has its
    # logits in float32.
    context = 128 + 64 + 64 + 2 * 32
    link = 128 + 64 + 64 + (2 + 2) * 32 + 2 * 32 + 96 + 64
    assert sizes.activation_bytes == 64 * context * 2 + 2 * 4 * (link * 2 + 24 * 4)

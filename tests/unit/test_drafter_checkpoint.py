"""A drafter's files: exact names and shapes, and what is wrong with any others."""

import json
import math

import pytest
import torch
from safetensors.torch import save_file

from benchmarks.rigs.tiny_drafter import (
    TinyDrafter,
    tiny_drafter_json,
    tiny_drafter_tensors,
    write_tiny_drafter,
)
from dflash.drafters.checkpoint import drafter_tensor_shapes, open_drafter_checkpoint
from dflash.drafters.config import dflash_config_from_json
from dflash.errors import CheckpointError
from dflash.models.config import model_config_from_json
from tests.rigs.published_drafters import MUSE_30B_V2, QWEN3_4B, QWEN3_8B, QWEN38_27B_V2
from tests.rigs.tiny_checkpoint import TINY_CONFIG

TARGET = model_config_from_json(TINY_CONFIG)
SECOND, REDUCED = TinyDrafter(), TinyDrafter(draft_vocab_size=24)
CODEBOOK = "candidate_selector.predecessor_codebook"


def tensors_of(kind=SECOND):
    return tiny_drafter_tensors(tiny_drafter_json(kind, TARGET))


def written(folder, tensors, kind=SECOND):
    return write_tiny_drafter(folder, kind, TARGET, tensors=tensors)


def write_config(folder, content, name="config.json"):
    (folder / name).write_text(json.dumps(content))


def read(folder, names=()):
    checkpoint = open_drafter_checkpoint(folder)
    checkpoint.target_ids()
    for name in names:
        checkpoint.tensor(name)


def refusal_of(folder, names=()) -> str:
    with pytest.raises(CheckpointError) as refusal:
        read(folder, names)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("content", "num_tensors", "num_parameters"),
    [
        (QWEN38_27B_V2, 81, 1_924_404_480),
        (MUSE_30B_V2, 81, 2_772_159_744),
        (QWEN3_4B, 58, 537_427_200),
        (QWEN3_8B, 58, 1_048_626_432),
    ],
)
def test_tensors_and_parameters_are_as_many_as_were_published(content, num_tensors, num_parameters):
    shapes = drafter_tensor_shapes(dflash_config_from_json(content))

    assert len(shapes) == num_tensors
    assert sum(map(math.prod, shapes.values())) == num_parameters


def test_the_published_shapes_of_the_27b_drafter():
    shapes = drafter_tensor_shapes(dflash_config_from_json(QWEN38_27B_V2))

    assert shapes["fc.weight"] == (5120, 25600)
    assert shapes["layers.4.self_attn.q_proj.weight"] == (4096, 5120)
    assert shapes["layers.4.self_attn.k_proj.weight"] == (1024, 5120)
    assert shapes["layers.0.self_attn.k_norm.weight"] == (128,)
    assert shapes["layers.0.mlp_conv.base_kernel"] == (2, 2, 5120)
    assert shapes["layers.0.attention_conv.kernel_projection.weight"] == (1280, 5120)
    assert shapes[CODEBOOK] == (248320, 256)
    assert shapes["candidate_selector.hidden_projection.weight"] == (256, 5120)


@pytest.mark.parametrize("kind", [TinyDrafter(version=1), SECOND, REDUCED])
def test_a_folder_gives_back_the_tensors_that_were_saved(tmp_path, kind):
    tensors = tensors_of(kind)

    checkpoint = open_drafter_checkpoint(written(tmp_path, tensors, kind))

    assert checkpoint.config.version == kind.version
    assert all(torch.equal(checkpoint.tensor(name), tensors[name]) for name in tensors)


@pytest.mark.parametrize(
    ("published", "alias"),
    [
        ("norm.weight", "model.norm.weight"),
        ("layers.0.mlp.up_proj.weight", "midlayer.mlp.up_proj.weight"),
        ("layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"),
        ("fc.weight", "encoder.fc.weight"),
        ("hidden_norm.weight", "encoder.output_norm_enc.weight"),
        (CODEBOOK, f"{CODEBOOK}.weight"),
    ],
)
def test_names_that_other_tools_write_are_understood(tmp_path, published, alias):
    tensors = tensors_of()
    expected = tensors.pop(published)

    checkpoint = open_drafter_checkpoint(written(tmp_path, tensors | {alias: expected}))

    assert torch.equal(checkpoint.tensor(published), expected)


def test_a_tensor_under_two_names_is_refused(tmp_path):
    tensors = tensors_of()
    tensors["model.norm.weight"] = tensors["norm.weight"].clone()

    message = refusal_of(written(tmp_path, tensors))
    assert "norm.weight twice" in message
    assert "model.norm.weight" in message


@pytest.mark.parametrize("name", ["fc.weight", CODEBOOK, "layers.1.attention_conv.base_kernel"])
def test_a_missing_tensor_is_refused_by_name(tmp_path, name):
    tensors = tensors_of()
    del tensors[name]

    assert f"lacks {name}" in refusal_of(written(tmp_path, tensors))


@pytest.mark.parametrize(
    "name",
    ["mask_embedding", "layers.0.self_attn.sinks", "layers.2.mlp.up_proj.weight", "g_proj",
     "layers.0.not2d", "layers.0.rotary_emb.inv_freq"],
)  # fmt: skip
def test_an_extra_tensor_is_refused_by_name(tmp_path, name):
    tensors = tensors_of() | {name: torch.zeros(4)}

    assert f"also holds {name}" in refusal_of(written(tmp_path, tensors))


def test_the_second_versions_tensors_in_a_first_version_are_refused(tmp_path):
    message = refusal_of(written(tmp_path, tensors_of(SECOND), TinyDrafter(version=1)))
    assert "candidate_selector" in message
    assert "v1" in message


def test_what_only_repeats_something_is_let_be(tmp_path):
    tensors = tensors_of(REDUCED) | {
        "rotary_emb.inv_freq": torch.ones(16),
        "t2d": torch.zeros(48, dtype=torch.bool),
    }

    assert open_drafter_checkpoint(written(tmp_path, tensors, REDUCED)).config.is_reduced


@pytest.mark.parametrize("name", ["fc.weight", CODEBOOK, "layers.0.mlp_conv.base_kernel"])
def test_a_misshapen_tensor_is_refused_with_both_shapes(tmp_path, name):
    tensors = tensors_of()
    tensors[name] = tensors[name][..., :-1].contiguous()

    message = refusal_of(written(tmp_path, tensors))

    assert name in message
    assert str(list(tensors[name].shape)) in message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["norm.weight", CODEBOOK])
def test_weights_that_are_not_finite_are_refused_when_read(tmp_path, name, value):
    tensors = tensors_of()
    tensors[name].view(-1)[3] = value

    message = refusal_of(written(tmp_path, tensors), [name])

    assert name in message
    assert "infinite or undefined" in message


def test_weights_as_pickle_are_never_opened(tmp_path):
    folder = written(tmp_path, tensors_of())
    (folder / "model.safetensors").rename(folder / "model.bin")

    assert "never opened" in refusal_of(folder)


def test_weights_stored_as_whole_numbers_are_refused(tmp_path):
    tensors = tensors_of()
    tensors["norm.weight"] = tensors["norm.weight"].to(torch.int64)

    assert "norm.weight is stored as I64" in refusal_of(written(tmp_path, tensors))


def test_the_map_of_a_reduced_head_adds_to_the_draft_id(tmp_path):
    tensors = tensors_of(REDUCED)
    ids = torch.arange(24) * 2 + 1
    tensors["d2t"] = ids - torch.arange(24)

    assert torch.equal(
        open_drafter_checkpoint(written(tmp_path, tensors, REDUCED)).target_ids(), ids
    )


def test_a_whole_head_has_no_map_even_where_the_file_has_zeros(tmp_path):
    tensors = tensors_of() | {"d2t": torch.zeros(48, dtype=torch.int64)}

    assert open_drafter_checkpoint(written(tmp_path, tensors)).target_ids() is None


def test_a_whole_head_whose_map_moves_ids_is_refused(tmp_path):
    tensors = tensors_of() | {"d2t": torch.ones(48, dtype=torch.int64)}

    assert "d2t moves ids" in refusal_of(written(tmp_path, tensors))


def test_a_map_stored_as_flags_is_refused(tmp_path):
    tensors = tensors_of(REDUCED) | {"d2t": torch.zeros(24, dtype=torch.bool)}

    assert "d2t is stored as BOOL" in refusal_of(written(tmp_path, tensors, REDUCED))


@pytest.mark.parametrize("key", ["mtp_num_hidden_layers", "mtp_config"])
def test_a_block_drafter_that_repeats_a_key_of_its_target_stays_one(tmp_path, key):
    folder = written(tmp_path, tensors_of())
    content = json.loads((folder / "config.json").read_text())
    write_config(folder, content | {key: 1})

    assert open_drafter_checkpoint(folder).config.kind == "DFlash v2"


@pytest.mark.parametrize(
    "ids",
    [
        [*range(23), 48],
        [-1, *range(1, 24)],
        [*range(22), 22, 22],
        [1, 0, *range(2, 24)],
    ],
)
def test_a_map_out_of_the_vocabulary_or_of_order_is_refused(tmp_path, ids):
    tensors = tensors_of(REDUCED)
    tensors["d2t"] = torch.tensor(ids) - torch.arange(24)

    assert "d2t" in refusal_of(written(tmp_path, tensors, REDUCED))


def test_a_reduced_head_without_its_map_is_refused(tmp_path):
    tensors = tensors_of(REDUCED)
    del tensors["d2t"]

    assert "lacks d2t" in refusal_of(written(tmp_path, tensors, REDUCED))


def test_a_map_stored_as_fractions_is_refused(tmp_path):
    tensors = tensors_of(REDUCED)
    tensors["d2t"] = tensors["d2t"].float()

    assert "d2t is stored as F32" in refusal_of(written(tmp_path, tensors, REDUCED))


def test_a_config_that_is_refused_names_its_file(tmp_path):
    content = tiny_drafter_json(SECOND, TARGET) | {"rms_norm_eps": 0}
    folder = write_tiny_drafter(tmp_path, SECOND, TARGET, tensors=tensors_of())
    write_config(folder, content)

    message = refusal_of(folder)

    assert str(folder / "config.json") in message
    assert "rms_norm_eps" in message


def test_a_file_cut_short_is_refused(tmp_path):
    folder = written(tmp_path, tensors_of())
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5])

    assert "cut" in refusal_of(folder)


def test_a_folder_without_weights_is_refused(tmp_path):
    folder = written(tmp_path, tensors_of())
    (folder / "model.safetensors").unlink()

    assert "neither" in refusal_of(folder)


def test_a_drafter_in_two_files_is_read_through_its_index(tmp_path):
    tensors = tensors_of()
    folder = written(tmp_path, tensors)
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map = {}
    for part in range(2):
        file_name = f"model-{part + 1:05}-of-00002.safetensors"
        save_file({name: tensors[name] for name in names[part::2]}, folder / file_name)
        weight_map |= dict.fromkeys(names[part::2], file_name)
    write_config(folder, {"weight_map": weight_map}, "model.safetensors.index.json")

    checkpoint = open_drafter_checkpoint(folder)

    assert all(torch.equal(checkpoint.tensor(name), tensors[name]) for name in names)

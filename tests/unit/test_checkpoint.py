import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from dflash.errors import CheckpointError
from dflash.models.checkpoint import open_checkpoint
from tests.rigs.tiny_checkpoint import (
    TINY_CONFIG,
    tiny_tensors,
    write_sharded_checkpoint,
    write_tiny_checkpoint,
)

QUERY = "model.layers.1.self_attn.q_proj.weight"


def opened(folder: Path):
    return open_checkpoint(str(folder), folder / "unused-cache")


def refusal_of(folder: Path) -> str:
    with pytest.raises(CheckpointError) as refusal:
        list(opened(folder).tensors())
    return str(refusal.value)


def test_a_folder_gives_back_the_tensors_that_were_saved(tmp_path):
    tensors = tiny_tensors()

    checkpoint = opened(write_tiny_checkpoint(tmp_path, tensors))

    assert dict(checkpoint.tensors()).keys() == tensors.keys()
    for name, tensor in checkpoint.tensors():
        assert torch.equal(tensor, tensors[name]), name
    assert torch.equal(checkpoint.tensor(QUERY), tensors[QUERY])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_three_plain_types_are_read_as_stored(tmp_path, dtype):
    tensors = {name: tensor.to(dtype) for name, tensor in tiny_tensors().items()}

    checkpoint = opened(write_tiny_checkpoint(tmp_path, tensors))

    assert checkpoint.tensor(QUERY).dtype is dtype


def test_a_sharded_folder_holds_the_same_tensors_as_one_file(tmp_path):
    tensors = tiny_tensors()

    sharded = dict(opened(write_sharded_checkpoint(tmp_path, tensors)).tensors())

    assert sharded.keys() == tensors.keys()
    assert all(torch.equal(sharded[name], tensors[name]) for name in tensors)


def test_an_untied_model_has_a_head_of_its_own(tmp_path):
    config = TINY_CONFIG | {"tie_word_embeddings": False}

    checkpoint = opened(write_tiny_checkpoint(tmp_path, config=config))

    assert checkpoint.tensor("lm_head.weight").shape == (48, 64)


def test_tensors_that_repeat_what_is_known_are_left_out(tmp_path):
    tensors = tiny_tensors()
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(16)

    checkpoint = opened(write_tiny_checkpoint(tmp_path, tensors))

    assert "lm_head.weight" not in checkpoint.paths
    assert not any("inv_freq" in name for name in checkpoint.paths)


def test_fingerprints_tell_two_fine_tunes_of_one_model_apart(tmp_path):
    first = write_tiny_checkpoint(tmp_path / "first", tiny_tensors(seed=1))
    second = write_tiny_checkpoint(tmp_path / "second", tiny_tensors(seed=2))
    copy = write_tiny_checkpoint(tmp_path / "copy", tiny_tensors(seed=1))

    assert opened(first).fingerprint == opened(copy).fingerprint
    assert opened(first).fingerprint != opened(second).fingerprint


def test_fingerprints_tell_two_configs_over_the_same_weights_apart(tmp_path):
    first = write_tiny_checkpoint(tmp_path / "first")
    second = write_tiny_checkpoint(tmp_path / "second", config=TINY_CONFIG | {"rope_theta": 2e4})

    assert opened(first).fingerprint != opened(second).fingerprint


@pytest.mark.parametrize("removed", [1, 100, 20_000])
def test_a_truncated_file_is_refused_before_a_weight_is_read(tmp_path, removed):
    path = write_tiny_checkpoint(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-removed])

    with pytest.raises(CheckpointError, match=r"model\.safetensors has .* cut short"):
        opened(tmp_path)


@pytest.mark.parametrize("kept", [0, 4, 8, 60])
def test_a_file_cut_within_its_header_is_refused(tmp_path, kept):
    path = write_tiny_checkpoint(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])

    assert "model.safetensors is" in refusal_of(tmp_path)


@pytest.mark.parametrize(
    "header",
    [
        b"[1]",
        b"{not json",
        b"\xff\xfe",
        b'{"a": 1}',
        b'{"a": {"dtype": "F32", "shape": [2]}}',
        b'{"a": {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]}}',
        b'{"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}',
        b'{"a": {"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]}}',
    ],
)
def test_a_header_that_makes_no_sense_is_refused(tmp_path, header):
    path = write_tiny_checkpoint(tmp_path) / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))

    assert "model.safetensors has a broken header" in refusal_of(tmp_path)


def test_a_missing_tensor_is_named(tmp_path):
    tensors = tiny_tensors()
    del tensors[QUERY]

    assert f"lacks {QUERY}" in refusal_of(write_tiny_checkpoint(tmp_path, tensors))


def test_a_wrong_shape_is_named_with_both_shapes(tmp_path):
    tensors = tiny_tensors() | {QUERY: torch.zeros(64, 32)}

    message = refusal_of(write_tiny_checkpoint(tmp_path, tensors))

    assert QUERY in message
    assert "[64, 32]" in message
    assert "[64, 64]" in message


def test_a_tensor_the_forward_would_leave_out_is_refused(tmp_path):
    tensors = tiny_tensors() | {"model.layers.0.self_attn.q_proj.bias": torch.zeros(64)}

    assert "q_proj.bias" in refusal_of(write_tiny_checkpoint(tmp_path, tensors))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", [0, 17, 64 * 64 - 1])
def test_one_weight_that_is_not_finite_is_refused_by_the_tensors_name(tmp_path, value, place):
    tensors = tiny_tensors()
    tensors[QUERY].view(-1)[place] = value

    message = refusal_of(write_tiny_checkpoint(tmp_path, tensors))

    assert QUERY in message
    assert "infinite or undefined" in message


def test_a_type_we_do_not_read_is_refused_by_name(tmp_path):
    tensors = tiny_tensors() | {QUERY: torch.zeros(64, 64, dtype=torch.int8)}

    assert f"{QUERY} is stored as I8" in refusal_of(write_tiny_checkpoint(tmp_path, tensors))


def test_a_tensor_in_two_files_is_refused(tmp_path):
    write_sharded_checkpoint(tmp_path, tiny_tensors())
    save_file(tiny_tensors(), tmp_path / "model-00002-of-00002.safetensors")

    assert "is in both" in refusal_of(tmp_path)


@pytest.mark.parametrize("weight_map", [None, {}, {"a": "../other/model.safetensors"}, {"a": 3}])
def test_an_index_that_points_outside_the_folder_is_refused(tmp_path, weight_map):
    write_sharded_checkpoint(tmp_path, tiny_tensors())
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))

    assert "weight_map must map tensors to files beside it" in refusal_of(tmp_path)


def test_an_index_that_names_an_absent_file_is_refused(tmp_path):
    write_sharded_checkpoint(tmp_path, tiny_tensors())
    (tmp_path / "model-00002-of-00002.safetensors").unlink()

    assert "cannot read" in refusal_of(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_a_folder_of_pickles_is_refused_unread(tmp_path, name):
    write_tiny_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / name)

    message = refusal_of(tmp_path)

    assert name in message
    assert "can run code" in message


def test_a_folder_without_weights_is_refused(tmp_path):
    write_tiny_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()

    assert "has neither model.safetensors nor" in refusal_of(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[]", "must hold a JSON object"),
        (b'{"eos_token_id": "two", "architectures": ["LlamaForCausalLM"]}', "must"),
    ],
)
def test_a_config_that_cannot_be_read_is_named_with_its_path(tmp_path, name, content, problem):
    write_tiny_checkpoint(tmp_path)
    (tmp_path / name).write_bytes(content)

    message = refusal_of(tmp_path)

    assert str(tmp_path / "config.json") in message or str(tmp_path / name) in message
    assert problem in message


def test_a_folder_without_a_config_is_refused(tmp_path):
    assert "config.json" in refusal_of(tmp_path)


def test_a_file_in_place_of_a_folder_is_refused_with_the_folder_to_give(tmp_path):
    write_tiny_checkpoint(tmp_path)

    message = refusal_of(tmp_path / "model.safetensors")

    assert f"give the folder that holds it ({tmp_path})" in message


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("smollm2-135m-instrct", "did you mean 'smollm2-135m-instruct'"),
        ("/no/such/folder", "no such folder"),
        ("", "no such folder"),
        ("a/b/c", "no such folder"),
        ("../x", "no such folder"),
        ("x" * 5000, "cannot be looked up"),
        ("~no-such-user-here/model", "cannot be looked up"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_with_a_hint(tmp_path, monkeypatch, source, hint):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(CheckpointError, match=r"engine\.model is") as refusal:
        open_checkpoint(source, tmp_path)

    assert hint in str(refusal.value)


def test_a_hub_id_that_cannot_be_fetched_is_named_with_the_fix(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    phases = []

    with pytest.raises(CheckpointError) as refusal:
        open_checkpoint("nobody/nothing-0", tmp_path, lambda phase, _: phases.append(phase))

    assert "'nobody/nothing-0'" in str(refusal.value)
    assert "name its folder" in str(refusal.value)
    assert phases == ["downloading nobody/nothing-0"]


def test_a_hub_download_asks_for_no_pickle_and_no_code(tmp_path, monkeypatch):
    folder = write_tiny_checkpoint(tmp_path / "snapshot")
    asked = {}

    def snapshot_download(hub_id, **options):
        asked.update(options, id=hub_id)
        return str(folder)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)

    checkpoint = open_checkpoint("org/tiny", tmp_path)

    assert checkpoint.folder == folder
    assert asked["id"] == "org/tiny"
    assert not any(pattern.endswith((".py", ".bin", "*")) for pattern in asked["allow_patterns"])

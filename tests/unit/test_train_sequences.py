"""Shards on disk: what they hold, that they are whole or absent, and whose folder it is."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from dflash.errors import ConfigError
from dflash.train import sequences
from dflash.train.answer_sampling import Sampling
from dflash.train.sequences import Manifest, SequenceFolder, TappedSequence

MANIFEST = Manifest(
    model="made-up",
    fingerprint="abc",
    taps=(0, 1),
    dtype="bfloat16",
    form="native-amx",
    prompts_sha256="def",
    prompts_per_shard=2,
    sampling=Sampling(),
)


def sequence(length, kind="chat", temperature=0.0):
    return TappedSequence(
        kind=kind,
        prompt_length=2,
        temperature=temperature,
        token_ids=torch.arange(length, dtype=torch.int32),
        features=torch.randn(length, 6, dtype=torch.bfloat16),
    )


def test_a_shard_lays_its_sequences_end_to_end(tmp_path):
    first, second = sequence(4), sequence(3, "rewriting", 1.0)
    SequenceFolder(tmp_path).write(7, [first, second])

    shard = load_file(tmp_path / "shard-00007.safetensors")
    assert {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in shard.items()} == {
        "token_ids": (torch.int32, (7,)),
        "offsets": (torch.int64, (3,)),
        "prompt_lengths": (torch.int32, (2,)),
        "temperatures": (torch.float32, (2,)),
        "features": (torch.bfloat16, (7, 6)),
    }
    assert shard["offsets"].tolist() == [0, 4, 7]
    assert shard["token_ids"].tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert shard["prompt_lengths"].tolist() == [2, 2]
    assert shard["temperatures"].tolist() == [0.0, 1.0]
    assert torch.equal(shard["features"], torch.cat([first.features, second.features]))
    sidecar = json.loads((tmp_path / "shard-00007.json").read_text())
    assert sidecar == {"kinds": ["chat", "rewriting"]}


def test_a_shard_may_be_empty(tmp_path):
    folder = SequenceFolder(tmp_path)
    folder.write(0, [])

    assert load_file(tmp_path / "shard-00000.safetensors")["offsets"].tolist() == [0]
    assert folder.indices() == [0]


@pytest.mark.parametrize("call", range(4))
def test_a_write_that_is_cut_short_leaves_no_shard_and_can_be_repeated(tmp_path, monkeypatch, call):
    calls = iter(range(10))

    def fails_at_the_chosen_call(descriptor):
        if next(calls) == call:
            raise KeyboardInterrupt

    folder = SequenceFolder(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(sequences.os, "fsync", fails_at_the_chosen_call)
        with pytest.raises(KeyboardInterrupt):
            folder.write(0, [sequence(4)])

    # The last call follows the move that makes the shard.
    assert folder.indices() == ([0] if call == 3 else [])
    folder.write(0, [sequence(5)])
    assert load_file(tmp_path / "shard-00000.safetensors")["offsets"].tolist() == [0, 5]
    assert not list(tmp_path.glob("*.partial"))


def test_shards_are_counted_in_order_and_measured(tmp_path):
    folder = SequenceFolder(tmp_path)
    for index in (11, 2):
        folder.write(index, [sequence(4)])

    assert folder.indices() == [2, 11]
    assert folder.num_bytes() == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_a_folder_keeps_its_manifest(tmp_path):
    folder = SequenceFolder(tmp_path / "new")
    folder.claim(MANIFEST)
    folder.claim(MANIFEST)

    assert folder.manifest() == MANIFEST


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fingerprint": "other"}, "fingerprint is abc, and this run has other"),
        ({"taps": (1,)}, r"taps is \(0, 1\), and this run has \(1,\)"),
        ({"sampling": Sampling(seed=9)}, "sampling is"),
    ],
)
def test_a_folder_of_another_recipe_is_refused(tmp_path, change, words):
    folder = SequenceFolder(tmp_path)
    folder.claim(MANIFEST)

    with pytest.raises(ConfigError, match=f"{words}.*name another --out folder"):
        folder.claim(replace(MANIFEST, **change))


@pytest.mark.parametrize("content", ["", "[]", '{"model": "x"}'])
def test_a_damaged_manifest_is_named(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)

    with pytest.raises(ConfigError, match=r"manifest.json cannot be read .* into a new folder"):
        SequenceFolder(tmp_path).claim(MANIFEST)

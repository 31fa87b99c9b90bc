"""Which drafter the settings come to, and what is said where there is none."""

import logging
import math
from dataclasses import replace

import pytest
import torch

from benchmarks.rigs.tiny_drafter import (
    TinyDrafter,
    tiny_drafter_json,
    tiny_drafter_tensors,
    write_tiny,
    write_tiny_drafter,
)
from benchmarks.rigs.tiny_mtp import TinyMtp
from dflash import forecast
from dflash.config import EMBEDDED_MODEL, Dtype, SpeculationConfig
from dflash.drafters import choice
from dflash.errors import CheckpointError, ConfigError
from dflash.load import load_engine, load_models, load_target
from dflash.memory import plan_memory
from tests.rigs.drafter_config import TARGET, drafter_config, with_drafter


@pytest.fixture
def config(tmp_path):
    return drafter_config(tmp_path)


def reason_for_none(models, caplog):
    """Return why there is no drafter, as every place says it."""
    assert models.drafters == ()
    said = models.speculation
    assert (said.drafter, said.draft_length) == (None, 0)
    assert said.detail in caplog.text
    return said.detail


@pytest.mark.parametrize(
    ("drafter", "reason"),
    [
        (None, "no drafter: engine.speculation.drafter is null"),
        (
            "auto",
            f"no drafter: engine.speculation.drafter is auto, and only {EMBEDDED_MODEL} brings one",
        ),
    ],
)
def test_no_drafter_is_said_with_its_reason(config, caplog, drafter, reason):
    with caplog.at_level(logging.INFO):
        models = load_models(with_drafter(config, drafter))

    assert reason_for_none(models, caplog) == reason


def test_a_draft_length_that_nobody_drafts_for_is_not_said_to_be_in_force(config):
    engine = load_engine(with_drafter(config, "auto", draft_length=5))

    assert engine.speculation.draft_length == 0
    assert "no drafter" in engine.speculation.detail


def embedded(config, monkeypatch, *folders):
    """Let the tiny target pass for the embedded model, with its drafters in these folders."""
    monkeypatch.setattr(choice, "EMBEDDED_MODEL", config.model)
    monkeypatch.setattr(choice, "EMBEDDED_DRAFTERS", folders)
    return with_drafter(config, "auto")


def test_auto_takes_the_embedded_models_drafter(config, monkeypatch, tmp_path):
    models = load_models(embedded(config, monkeypatch, tmp_path / "drafter"))

    assert len(models.drafters) == 1
    assert models.speculation.drafter == "drafter"


def test_auto_without_a_drafter_in_this_version_says_just_that(
    config, monkeypatch, tmp_path, caplog
):
    with caplog.at_level(logging.INFO):
        models = load_models(embedded(config, monkeypatch, tmp_path / "none"))

    assert reason_for_none(models, caplog) == (
        "no drafter: engine.speculation.drafter is auto, and this version brings none for "
        f"{config.model}"
    )


def of_another_target(folder):
    write_tiny_drafter(folder, TinyDrafter(), replace(TARGET, vocab_size=64))


def without_config(folder):
    (folder / "config.json").unlink()


def with_a_word_of_another_type(folder):
    (folder / "config.json").write_text('{"speculators_model_type": []}')


def cut_short(folder):
    (folder / "model.safetensors").write_bytes(b"{}")


def without_weights(folder):
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (of_another_target, "vocab_size 64"),
        (without_config, "cannot read wrong/config.json"),
        (with_a_word_of_another_type, "wrong/config.json: speculators_model_type is []"),
        (cut_short, "wrong/model.safetensors is cut short"),
        (without_weights, "wrong has neither"),
    ],
)
def test_auto_with_a_wrong_drafter_says_why_and_tells_clients_no_path(
    config, monkeypatch, tmp_path, caplog, spoil, words
):
    folder = write_tiny_drafter(tmp_path / "wrong", TinyDrafter(), TARGET)
    spoil(folder)

    with caplog.at_level(logging.INFO):
        models = load_models(embedded(config, monkeypatch, folder))

    reason = reason_for_none(models, caplog)
    assert words in reason
    assert str(tmp_path) not in reason
    assert str(folder) in caplog.text


def test_weights_that_only_a_wider_type_holds_are_refused_in_the_narrower(config, tmp_path):
    tensors = tiny_drafter_tensors(tiny_drafter_json(TinyDrafter(), TARGET))
    tensors = {name: t.float() if t.is_floating_point() else t for name, t in tensors.items()}
    tensors["fc.weight"][3, 3] = torch.finfo(torch.float32).max
    write_tiny_drafter(tmp_path / "drafter", TinyDrafter(), TARGET, tensors=tensors)

    assert load_models(config).drafters
    with pytest.raises(CheckpointError, match=r"fc\.weight holds weights that are infinite in"):
        load_models(replace(config, dtype=Dtype.BFLOAT16))


def test_auto_with_damaged_weights_serves_plainly_and_a_named_drafter_is_refused(
    config, monkeypatch, tmp_path, caplog
):
    tensors = tiny_drafter_tensors(tiny_drafter_json(TinyDrafter(), TARGET))
    tensors["fc.weight"][3, 3] = math.nan
    folder = write_tiny_drafter(tmp_path / "damaged", TinyDrafter(), TARGET, tensors=tensors)

    with caplog.at_level(logging.INFO):
        models = load_models(embedded(config, monkeypatch, folder))

    reason = reason_for_none(models, caplog)
    assert "fc.weight holds infinite or undefined weights" in reason
    with pytest.raises(CheckpointError, match=r"fc\.weight"):
        load_models(with_drafter(config, str(folder)))


def test_auto_takes_every_drafter_that_fits_and_leaves_a_damaged_one_out(
    config, monkeypatch, tmp_path, caplog
):
    whole = write_tiny(tmp_path / "head", TinyMtp(), TARGET)
    damaged = write_tiny(tmp_path / "damaged", TinyMtp(), replace(TARGET, vocab_size=64))
    block, missing = tmp_path / "drafter", tmp_path / "missing"

    def names(*folders):
        said = load_models(embedded(config, monkeypatch, *folders)).speculation
        return [drafter.name for drafter in said.drafters]

    assert names(block, whole) == ["drafter", "head"]
    assert names(block, missing) == ["drafter"]
    with caplog.at_level(logging.WARNING):
        assert names(block, damaged) == ["drafter"]
    assert "a drafter is left out" in caplog.text
    assert "vocab_size 64" in caplog.text


def no_room_beside_the_target(monkeypatch):
    def plan(*sizes):
        if len(sizes) == 5:
            raise ConfigError("the engine does not fit: weights 1 MiB + drafter weights 2 MiB")
        return plan_memory(*sizes)

    monkeypatch.setattr(forecast, "plan_memory", plan)


def test_auto_without_room_for_the_drafter_serves_plainly_and_says_why(
    config, monkeypatch, tmp_path, caplog
):
    no_room_beside_the_target(monkeypatch)

    with caplog.at_level(logging.INFO):
        models = load_models(embedded(config, monkeypatch, tmp_path / "drafter"))

    reason = reason_for_none(models, caplog)
    assert reason.startswith("no drafter: with drafter, the engine does not fit")
    assert "drafter weights 2 MiB" in reason


def test_auto_with_room_for_one_drafter_takes_the_first(config, monkeypatch, tmp_path):
    head = write_tiny(tmp_path / "head", TinyMtp(), TARGET)

    def plan(*sizes):
        if len(sizes) == 5 and len(sizes[-1]) == 2:
            raise ConfigError("the engine does not fit")
        return plan_memory(*sizes)

    monkeypatch.setattr(forecast, "plan_memory", plan)
    said = load_models(embedded(config, monkeypatch, tmp_path / "drafter", head)).speculation
    assert [drafter.name for drafter in said.drafters] == ["drafter"]


def test_a_named_drafter_without_room_is_refused(config, monkeypatch):
    no_room_beside_the_target(monkeypatch)

    with pytest.raises(ConfigError, match="drafter weights 2 MiB"):
        load_models(config)


def test_a_named_drafter_of_another_target_is_refused_with_the_reason(config, tmp_path):
    other = replace(TARGET, hidden_size=128)
    write_tiny_drafter(tmp_path / "other", TinyDrafter(), other)

    with pytest.raises(CheckpointError, match="hidden_size 128, this target's is 64"):
        load_models(with_drafter(config, str(tmp_path / "other")))


def test_two_drafters_of_one_kind_are_refused_by_their_names(config, tmp_path):
    other = write_tiny(tmp_path / "other", TinyDrafter(seed=1), TARGET)
    with pytest.raises(CheckpointError, match="names drafter and other, both DFlash v2; name one"):
        load_models(with_drafter(config, (str(tmp_path / "drafter"), str(other))))


def test_a_drafter_trained_for_another_checkpoint_of_the_same_shape_is_refused(config, tmp_path):
    fingerprint = load_target(config).fingerprint
    for name, value in (("own", fingerprint), ("other", "0" * 64)):
        content = tiny_drafter_json(TinyDrafter(), TARGET)
        content["dflash_config"]["target_fingerprint"] = value
        write_tiny_drafter(tmp_path / name, TinyDrafter(), TARGET, content)

    assert load_models(with_drafter(config, str(tmp_path / "own"))).drafters
    with pytest.raises(CheckpointError, match="target_fingerprint"):
        load_models(with_drafter(config, str(tmp_path / "other")))


@pytest.mark.parametrize(
    ("source", "words"),
    [("no-such-folder", "no such folder"), ("", "no such folder"), (__file__, "a file")],
)
def test_a_drafter_that_is_not_there_is_refused_by_its_key(config, source, words):
    with pytest.raises(CheckpointError, match=words) as refusal:
        load_models(with_drafter(config, source))
    assert str(refusal.value).startswith("engine.speculation.drafter")


@pytest.mark.parametrize(("drafter", "draft_length"), [("auto", -1), ("auto", 16), (None, 1)])
def test_a_draft_length_that_cannot_work_is_refused(drafter, draft_length):
    with pytest.raises(ConfigError, match=r"engine\.speculation\.draft_length"):
        SpeculationConfig(drafter, draft_length)


def test_an_empty_list_of_drafters_is_refused():
    with pytest.raises(ConfigError, match=r"engine\.speculation\.drafter is an empty list"):
        SpeculationConfig(())

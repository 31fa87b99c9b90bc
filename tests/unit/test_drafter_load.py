"""From settings to an engine with a drafter: what is chosen, refused, planned for and said."""

import logging
import math
from dataclasses import replace

import pytest

from benchmarks.rigs.tiny_drafter import (
    TinyDrafter,
    load_tiny_drafter,
    tiny_drafter_json,
    tiny_drafter_tensors,
    write_tiny,
    write_tiny_drafter,
)
from benchmarks.rigs.tiny_mtp import TinyMtp
from dflash import load
from dflash.config import (
    EMBEDDED_MODEL,
    Dtype,
    EngineConfig,
    EngineLimits,
    KVCacheConfig,
    SpeculationConfig,
)
from dflash.drafters import choice
from dflash.errors import CheckpointError, ConfigError
from dflash.load import load_engine, load_models, load_target
from dflash.memory import plan_memory
from dflash.models.config import model_config_from_json
from dflash.request import GenerateRequest, SamplingParams
from tests.rigs.loaded_drafter import row
from tests.rigs.tiny_checkpoint import TINY_CONFIG, write_tiny_checkpoint

TARGET = model_config_from_json(TINY_CONFIG)
LIMITS = EngineLimits(max_num_seqs=4, max_num_batched_tokens=64)


@pytest.fixture
def config(tmp_path):
    """A tiny target, and a drafter for it in the folder ``drafter`` beside it."""
    write_tiny_drafter(tmp_path / "drafter", TinyDrafter(), TARGET)
    return EngineConfig(
        model=str(write_tiny_checkpoint(tmp_path / "model")),
        dtype=Dtype.FLOAT32,
        num_threads=1,
        cache_dir=str(tmp_path / "cache"),
        kv_cache=KVCacheConfig(memory_gib=0.002),
        limits=LIMITS,
        speculation=SpeculationConfig(str(tmp_path / "drafter")),
    )


def with_drafter(config, drafter, draft_length=0):
    return replace(config, speculation=SpeculationConfig(drafter, draft_length))


def results_of(engine, temperature):
    params = SamplingParams(temperature=temperature)
    for name, prompt in (("a", (3, 4, 5)), ("b", tuple(range(3, 40)))):
        engine.submit(GenerateRequest(name, prompt, 24, params, seed=7))
    ids, num_drafted = {"a": [], "b": []}, 0
    while engine.has_work:
        result = engine.step()
        assert result.stats.drafter_fault is None
        num_drafted += result.stats.num_draft_tokens
        for output in result.outputs:
            ids[output.request_id].extend(output.token_ids)
    return ids, num_drafted


class Spy:
    """Passes calls on and keeps how many draft tokens each row asked for."""

    def __init__(self, drafter, asked):
        self.observe = drafter.observe
        self._drafter, self._asked = drafter, asked

    def propose(self, rows):
        self._asked.append([row.num_drafts for row in rows])
        return self._drafter.propose(rows)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "kind",
    [
        TinyDrafter(version=1),
        TinyDrafter(draft_vocab_size=24),
        TinyMtp(),
        TinyMtp(window=20, draft_vocab_size=24, has_offset_norms=True),
    ],
)
def test_an_engine_with_a_drafter_gives_the_ids_of_one_without(config, tmp_path, kind, temperature):
    write_tiny(tmp_path / "other", kind, TARGET)
    plain, none_drafted = results_of(load_engine(with_drafter(config, None)), temperature)

    engine = load_engine(with_drafter(config, str(tmp_path / "other"), draft_length=5))
    drafted, num_drafted = results_of(engine, temperature)

    assert drafted == plain
    assert num_drafted > 20
    assert none_drafted == 0


def test_a_served_engine_has_one_block_a_step_drafted_to_its_end(config):
    engine = load_engine(with_drafter(config, config.speculation.drafter, draft_length=1))
    asked = []
    drafter = engine._drafting._drafter
    engine._drafting._drafter = Spy(drafter, asked)
    for name in ("a", "b"):
        engine.submit(GenerateRequest(name, (3, 4, 5), 12, SamplingParams(), seed=7))
    while engine.has_work:
        engine.step()
    both = [sorted(counts) for counts in asked if len(counts) == 2]
    assert both
    assert all(counts == [1, drafter.facts.max_draft_length] for counts in both)


def test_two_drafters_of_one_target_draft_each_by_its_own_weights(config, tmp_path):
    target = load_target(config)

    def drafts(name, seed, beside):
        kind = TinyDrafter(seed=seed)
        drafter = load_tiny_drafter(tmp_path / name, kind, beside, max_runs=1)
        return drafter.propose([row(0)])

    second_alone = drafts("alone", 1, load_target(config))
    assert drafts("first", 0, target) != second_alone
    assert drafts("second", 1, target) == second_alone


def test_a_drafter_takes_the_form_and_the_type_of_its_target(config):
    models = load_models(config)

    assert models.drafter is not None
    form = models.target.exactness.form
    assert models.drafter.block.form == models.drafter.context.form == form


def test_a_target_can_be_loaded_without_its_drafter(config):
    assert load_target(config).runner.facts == load_models(config).target.runner.facts


@pytest.mark.parametrize(
    ("asked", "in_force", "words"),
    [
        (0, 0, "loaded, and not used: engine.speculation.draft_length is 0"),
        (5, 5, "5 draft tokens a request and step"),
        (15, 7, "7 draft tokens a request and step: engine.speculation.draft_length is 15"),
    ],
)
def test_a_drafter_is_said_with_its_block_and_the_length_in_force(
    config, tmp_path, caplog, asked, in_force, words
):
    with caplog.at_level(logging.INFO):
        engine = load_engine(with_drafter(config, str(tmp_path / "drafter"), asked))

    said = engine.speculation
    assert (said.drafter, said.draft_length) == ("drafter", in_force)
    assert said.detail.startswith("drafter, DFlash v2, block of 8: an anchor and up to 7 draft")
    assert words in said.detail
    assert said.detail in caplog.text
    most = 0
    engine.submit(GenerateRequest("a", (3, 4, 5), 60, SamplingParams(temperature=0.0)))
    while engine.has_work:
        most = max(most, engine.step().stats.num_draft_tokens)
    assert most == in_force


def test_an_mtp_head_is_said_with_its_reach(config, tmp_path):
    write_tiny(tmp_path / "head", TinyMtp(draft_length=3), TARGET)

    said = load_engine(with_drafter(config, str(tmp_path / "head"), 5)).speculation

    assert (said.drafter, said.draft_length) == ("head", 3)
    assert said.detail == (
        "head, MTP, chain of up to 3 draft tokens; 3 draft tokens a request and step: "
        "engine.speculation.draft_length is 5, over its reach"
    )


def test_a_drafter_from_a_hub_goes_by_its_id(config, monkeypatch, tmp_path):
    monkeypatch.setattr(choice, "downloaded", lambda _source, _setting: tmp_path / "drafter")

    models = load_models(with_drafter(config, "someone/tiny-dflash"))

    assert models.speculation.drafter == "someone/tiny-dflash"


def reason_for_none(models, caplog):
    """Return why there is no drafter, as every place says it."""
    assert models.drafter is None
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


def embedded(config, monkeypatch, folder):
    """Let the tiny target pass for the embedded model, with its drafter in a folder."""
    monkeypatch.setattr(choice, "EMBEDDED_MODEL", config.model)
    monkeypatch.setattr(choice, "EMBEDDED_DRAFTER", folder)
    return with_drafter(config, "auto")


def test_auto_takes_the_embedded_models_drafter(config, monkeypatch, tmp_path):
    models = load_models(embedded(config, monkeypatch, tmp_path / "drafter"))

    assert models.drafter is not None
    assert models.speculation.drafter == "drafter"


@pytest.mark.parametrize(("changes", "words"), [({"vocab_size": 64}, "vocab_size 64"), (None, "")])
def test_auto_without_a_drafter_that_fits_serves_plainly_and_says_why(
    config, monkeypatch, tmp_path, caplog, changes, words
):
    folder = tmp_path / "wrong"
    if changes is not None:
        write_tiny_drafter(folder, TinyDrafter(), replace(TARGET, **changes))

    with caplog.at_level(logging.INFO):
        models = load_models(embedded(config, monkeypatch, folder))

    reason = reason_for_none(models, caplog)
    assert str(folder) in reason
    assert words in reason


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


def no_room_beside_the_target(monkeypatch):
    def plan(*sizes):
        if len(sizes) == 5:
            raise ConfigError("the engine does not fit: weights 1 MiB + drafter weights 2 MiB")
        return plan_memory(*sizes)

    monkeypatch.setattr(load, "plan_memory", plan)


def test_auto_without_room_for_the_drafter_serves_plainly_and_says_why(
    config, monkeypatch, tmp_path, caplog
):
    no_room_beside_the_target(monkeypatch)

    with caplog.at_level(logging.INFO):
        models = load_models(embedded(config, monkeypatch, tmp_path / "drafter"))

    reason = reason_for_none(models, caplog)
    assert reason.startswith("no drafter: with drafter, the engine does not fit")
    assert "drafter weights 2 MiB" in reason


def test_a_named_drafter_without_room_is_refused(config, monkeypatch):
    no_room_beside_the_target(monkeypatch)

    with pytest.raises(ConfigError, match="drafter weights 2 MiB"):
        load_models(config)


def test_a_named_drafter_of_another_target_is_refused_with_the_reason(config, tmp_path):
    other = replace(TARGET, hidden_size=128)
    write_tiny_drafter(tmp_path / "other", TinyDrafter(), other)

    with pytest.raises(CheckpointError, match="hidden_size 128, this target's is 64"):
        load_models(with_drafter(config, str(tmp_path / "other")))


def test_a_drafter_trained_for_another_checkpoint_of_the_same_shape_is_refused(config, tmp_path):
    fingerprint = load_target(config).fingerprint
    for name, value in (("own", fingerprint), ("other", "0" * 64)):
        content = tiny_drafter_json(TinyDrafter(), TARGET)
        content["dflash_config"]["target_fingerprint"] = value
        write_tiny_drafter(tmp_path / name, TinyDrafter(), TARGET, content)

    assert load_models(with_drafter(config, str(tmp_path / "own"))).drafter is not None
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

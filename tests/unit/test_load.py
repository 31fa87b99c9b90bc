"""From settings to an engine: what is chosen, what is refused, what is said."""

import logging

import pytest

from dflash import forecast, load
from dflash.config import Dtype, EngineConfig, Exactness, KVCacheConfig
from dflash.errors import CheckpointError, ConfigError, KernelError
from dflash.kernels.build import NativeBuild
from dflash.load import load_engine
from dflash.request import GenerateRequest, SamplingParams
from tests.rigs.tiny_checkpoint import TINY_CONFIG, write_tiny_checkpoint


@pytest.fixture
def config(tmp_path):
    folder = write_tiny_checkpoint(tmp_path / "model")
    return EngineConfig(
        model=str(folder),
        dtype=Dtype.FLOAT32,
        num_threads=1,
        cache_dir=str(tmp_path / "cache"),
        kv_cache=KVCacheConfig(memory_gib=0.002),
    )


def ids_of(engine):
    engine.submit(GenerateRequest("a", (3, 4, 5), 6, SamplingParams(temperature=0.0)))
    ids = []
    while engine.has_work:
        for output in engine.step().outputs:
            ids.extend(output.token_ids)
    return ids


def without_compiler(monkeypatch):
    monkeypatch.setattr(load, "native_build", lambda: NativeBuild(None, "no C compiler was found"))


def test_progress_rises_to_one_and_names_its_phases(config):
    seen = []
    load_engine(config, lambda phase, fraction: seen.append((phase, fraction)))

    fractions = [fraction for _, fraction in seen]
    assert fractions == sorted(fractions)
    assert seen[-1] == ("ready", 1.0)
    assert {"planning memory", "loading weights", "probing the kernels"} <= {p for p, _ in seen}


def test_the_memory_plan_and_the_exactness_are_logged(config, caplog):
    with caplog.at_level(logging.INFO):
        engine = load_engine(config)

    assert "memory plan" in caplog.text
    assert "KV pages" in caplog.text
    assert "exactness bitwise" in caplog.text
    assert engine.exactness.mode is Exactness.BITWISE


def test_without_a_compiler_the_reference_serves_exactly_and_says_so(config, monkeypatch, caplog):
    expected = ids_of(load_engine(config))
    without_compiler(monkeypatch)

    engine = load_engine(config)

    assert engine.exactness.mode is Exactness.BITWISE
    assert engine.exactness.form.startswith("torch")
    assert "no C compiler was found" in engine.exactness.detail
    assert "no C compiler was found" in caplog.text
    assert ids_of(engine) == expected


def test_a_form_that_fails_the_probe_is_passed_over_by_name(config, monkeypatch):
    probed = []

    def differs_first(executor, _vocab_size):
        probed.append(executor.form)
        return "position 9 beside other requests" if len(probed) == 1 else None

    monkeypatch.setattr(load, "first_difference", differs_first)
    engine = load_engine(config)

    assert engine.exactness.form == probed[1]
    assert f"{probed[0]} differs at position 9" in engine.exactness.detail


def test_a_machine_without_an_exact_form_is_refused_not_relaxed(config, monkeypatch):
    monkeypatch.setattr(load, "first_difference", lambda *_: "position 3")

    with pytest.raises(KernelError, match=r"set engine\.exactness to relaxed"):
        load_engine(config)


def test_relaxed_is_served_only_where_it_was_asked_for(config):
    from dataclasses import replace

    engine = load_engine(replace(config, exactness=Exactness.RELAXED))

    assert engine.exactness.mode is Exactness.RELAXED
    assert "asked for" in engine.exactness.detail
    assert ids_of(engine) == ids_of(load_engine(config))


def test_a_plan_that_does_not_fit_is_refused_before_weights_are_read(config, monkeypatch):
    from dataclasses import replace

    monkeypatch.setattr(load, "allocate_pages", lambda *_: pytest.fail("memory was taken"))

    with pytest.raises(ConfigError, match="KV pages"):
        load_engine(replace(config, kv_cache=KVCacheConfig(memory_gib=1000)))


def test_a_missing_model_is_refused_by_name(config):
    from dataclasses import replace

    with pytest.raises(CheckpointError, match="smollm2-135m-instruct"):
        load_engine(replace(config, model="smollm2-135m-instrct"))


@pytest.mark.parametrize("max_model_len", [2, 16, 32])
def test_the_probe_has_room_of_its_own_where_little_is_served(config, monkeypatch, max_model_len):
    from dataclasses import replace

    # Torch checks every index; the compiled kernels would read past the end in silence.
    without_compiler(monkeypatch)
    plan_memory = forecast.plan_memory
    monkeypatch.setattr(forecast, "plan_memory", lambda *a: replace(plan_memory(*a), num_pages=2))

    engine = load_engine(replace(config, max_model_len=max_model_len))

    assert engine.exactness.mode is Exactness.BITWISE
    assert (engine.facts.max_model_len, engine.facts.num_pages) == (max_model_len, 2)


def test_a_width_the_compiled_form_cannot_take_is_served_by_the_reference(tmp_path, config):
    from dataclasses import replace

    sizes = TINY_CONFIG | {"intermediate_size": 100}
    folder = write_tiny_checkpoint(tmp_path / "odd", config=sizes)
    engine = load_engine(replace(config, model=str(folder)))

    assert engine.exactness.mode is Exactness.BITWISE
    assert engine.exactness.form.startswith("torch")
    assert len(ids_of(engine)) > 0

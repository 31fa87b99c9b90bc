"""Starting an engine: step times measured once, the policy in charge, plain decoding without."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.rigs.tiny_drafter import TinyDrafter, write_tiny_drafter
from deployments import engine_start, replay
from deployments.engine_start import open_engine
from deployments.policy_desk import PolicyDesk
from deployments.replica import RunningEngine
from dflash.config import AUTO_LENGTH, EngineConfig, KVCacheConfig
from dflash.errors import ProfileError
from dflash.models.config import model_config_from_json
from dflash.plan import DraftPlan, FixedPlanner, Release
from dflash.request import GenerateRequest, SamplingParams
from tests.rigs.drafter_config import drafter_config, with_drafter
from tests.rigs.tiny_checkpoint import TINY_CONFIG


@pytest.fixture
def config(tmp_path: Path) -> EngineConfig:
    config = drafter_config(tmp_path, max_position_embeddings=512)
    config = replace(config, kv_cache=KVCacheConfig(memory_gib=0.02))
    return with_drafter(config, config.speculation.drafter, AUTO_LENGTH)


@pytest.fixture
def opened():
    """Opens engines, and ends them."""
    running: list[RunningEngine] = []

    def start(config: EngineConfig, phases: list[tuple[str, float]]) -> RunningEngine:
        running.append(open_engine(config, lambda *phase: phases.append(phase), lambda _: None))
        return running[-1]

    yield start
    for each in running:
        each.loop.stop()
        if each.policy is not None:
            each.policy.stop()


def test_auto_measures_once_and_puts_the_policy_in_charge(config, opened, monkeypatch):
    phases: list[tuple[str, float]] = []
    first = opened(config, phases)
    assert isinstance(first.policy, PolicyDesk)
    assert min(drafter_bytes(first)) > 0
    assert first.engine.speculation.draft_length == AUTO_LENGTH
    shares = [share for _, share in phases]
    assert shares == sorted(shares)
    assert sum(phase == "measuring step times" for phase, _ in phases) > 1

    monkeypatch.setattr("deployments.step_times.profile", _never)
    again = opened(config, [])
    assert again.policy.status().arm == "plain"


def test_a_fixed_length_asks_no_policy_and_measures_nothing(config, opened, monkeypatch):
    monkeypatch.setattr("deployments.step_times.profile", _never)
    fixed = opened(with_drafter(config, config.speculation.drafter, 2), [])
    assert fixed.policy is None
    assert fixed.engine.speculation.draft_length == 2
    assert opened(with_drafter(config, None, AUTO_LENGTH), []).policy is None


def test_what_the_policy_does_is_watched_and_recorded_where_the_settings_say(
    config, opened, tmp_path
):
    wanted = replace(config.speculation, record_dir=str(tmp_path / "record"))
    running = opened(replace(config, speculation=wanted), [])
    assert running.policy._watch.latest.trouble is None
    running.loop.submit(GenerateRequest("r", (1, 2, 3), 40, SamplingParams(ignore_eos=True)))
    assert running.loop.drain(30.0)
    running.policy.stop()
    (path,) = (tmp_path / "record").glob("signals-*.jsonl")
    assert replay.main([str(path)]) == 0


def test_a_measurement_that_fails_leaves_no_plan_of_its_own(config, opened, monkeypatch):
    def fails(engine, *_):
        engine.set_planner(FixedPlanner(DraftPlan(released={"dflash2": Release.WEIGHTS})))
        raise ProfileError("a step failed")

    monkeypatch.setattr("deployments.step_times.profile", fails)
    assert opened(config, []).engine._planning.planner == FixedPlanner()


def test_without_step_times_it_decodes_plainly_and_says_why(config, opened, monkeypatch):
    def fails(*_):
        raise ProfileError("a step failed: no such kernel")

    monkeypatch.setattr(engine_start, "step_times_of", fails)
    running = opened(config, [])
    assert running.policy is None
    said = running.engine.speculation
    assert said.draft_length == 0
    assert "no such kernel" in said.detail


def test_times_are_of_one_model_length_one_drafter_and_one_set_of_kernels(
    config, opened, monkeypatch
):
    keys = []

    def asked(engine, key, *_):
        keys.append(json.dumps(key))
        raise ProfileError("it is enough to be asked")

    monkeypatch.setattr(engine_start, "step_times_of", asked)
    opened(config, [])
    opened(config, [])
    assert len({*keys}) == 1
    opened(replace(config, max_model_len=256), [])
    target = model_config_from_json(TINY_CONFIG | {"max_position_embeddings": 512})
    write_tiny_drafter(Path(config.speculation.drafter), TinyDrafter(num_layers=1), target)
    opened(config, [])
    assert len({*keys}) == 3
    # A kernel that was written anew is another one.
    monkeypatch.setattr(engine_start, "kernels_fingerprint", lambda: "another")
    opened(config, [])
    assert len({*keys}) == 4


def drafter_bytes(running: RunningEngine) -> tuple[int, int]:
    sources = running.policy.planner._sources
    return sources.context_bytes, sources.weights_bytes


def _never(*_):
    raise AssertionError("nothing is to be measured")

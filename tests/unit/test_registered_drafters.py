"""Every drafter that has a name can be made up, and is served by the benchmarks of exactness."""

import pytest

from benchmarks.rigs.loaded_arms import loaded_arms
from benchmarks.rigs.registered_drafters import REGISTERED, made_up
from dflash.config import Dtype, EngineConfig, KVCacheConfig, SpeculationConfig
from dflash.drafters.base import DrafterKind
from dflash.load import load_models
from tests.rigs.tiny_checkpoint import write_tiny_checkpoint


@pytest.fixture
def models(tmp_path):
    return load_models(
        EngineConfig(
            model=str(write_tiny_checkpoint(tmp_path / "model")),
            dtype=Dtype.FLOAT32,
            num_threads=1,
            cache_dir=str(tmp_path / "cache"),
            kv_cache=KVCacheConfig(memory_gib=0.002),
            speculation=SpeculationConfig(drafter=None),
        )
    )


def test_each_drafter_has_its_fixtures():
    assert set(REGISTERED) == set(DrafterKind)
    assert [fixtures.script.name for fixtures in REGISTERED.values()] == list(REGISTERED)


@pytest.mark.parametrize("name", DrafterKind)
def test_what_is_made_up_for_a_drafter_is_that_drafter(models, name: DrafterKind):
    facts, script = made_up(models.target, name).facts, REGISTERED[name].script

    assert (facts.name, facts.max_draft_length) == (name, script.max_draft_length)
    assert facts.drafts_whole_block == script.drafts_whole_block


def test_arms_serve_each_registered_drafter_alone_and_all_of_them_together(models):
    arms = loaded_arms(models)

    served = [{drafter.facts.name for drafter in arm.drafters()} for arm in arms]
    assert [names for names in served if len(names) == 1] == [{name} for name in DrafterKind]
    together = [arm for arm, names in zip(arms, served, strict=True) if names == set(DrafterKind)]
    assert len(together) == 3
    for arm in together:
        assert set(arm.events) >= {f"drafted_by_{name}" for name in DrafterKind}

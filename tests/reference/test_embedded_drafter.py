"""The drafters that are shipped: the embedded model's, within their sizes, worth their passes."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from benchmarks.prompts import Chat
from benchmarks.rigs.served import Manner, Served, served
from dflash.config import EngineConfig, KVCacheConfig
from dflash.drafters.base import Drafter
from dflash.drafters.choice import EMBEDDED_DRAFTERS
from dflash.load import LoadedModels, load_models
from dflash.plan import Arm, DraftPlan, FixedPlanner
from dflash.request import GenerateRequest, SamplingParams
from dflash.train.prompts.mix import held_out_prompts

SHIPPED = [folder for folder in EMBEDDED_DRAFTERS if folder.is_dir()]
MOST_BYTES = {"dflash": 25_000_000, "mtp": 10_000_000}
NUM_PROMPTS = 12


@pytest.fixture(scope="module")
def models() -> LoadedModels:
    return load_models(EngineConfig(num_threads=1, kv_cache=KVCacheConfig(memory_gib=0.25)))


@pytest.fixture(scope="module")
def requests(models) -> list[GenerateRequest]:
    chat = Chat(models.target.model_folder)
    return [
        GenerateRequest(
            request_id=str(index),
            prompt_token_ids=tuple(chat.token_ids(prompt.turns[:1])),
            max_tokens=48,
            sampling=SamplingParams(temperature=float(index % 3 == 2)),
            seed=index,
        )
        for index, prompt in enumerate(held_out_prompts(NUM_PROMPTS))
    ]


@pytest.fixture(params=range(len(SHIPPED)), ids=[folder.name for folder in SHIPPED])
def drafter(request, models) -> Drafter:
    return models.drafters[request.param]


def drafted(models: LoadedModels, drafter: Drafter, requests: list[GenerateRequest]) -> Served:
    arm = Arm(drafter.facts.name, drafter.facts.max_draft_length)
    planner = FixedPlanner(DraftPlan(arm, warm=frozenset({arm.drafter})))
    return served(models.target.runner, requests, Manner(drafters=[drafter], planner=planner))


def test_a_block_drafter_is_shipped():
    assert EMBEDDED_DRAFTERS[0] in SHIPPED


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_it_fits_and_holds_bfloat16_weights_and_a_map_of_ids(folder: Path):
    path = folder / "model.safetensors"
    assert path.stat().st_size <= MOST_BYTES[folder.name.rpartition("-")[2]]
    with safe_open(path, framework="pt") as file:
        types = {name: file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118
    assert types.pop("d2t") == torch.int64
    assert set(types.values()) == {torch.bfloat16}


def test_the_default_settings_load_all_of_them(models):
    said = models.speculation
    assert [each.name for each in said.drafters] == [folder.name for folder in SHIPPED]
    assert said.drafter == EMBEDDED_DRAFTERS[0].name


def test_its_drafts_are_worth_a_pass_and_change_no_bit(models, drafter, requests):
    plain = served(models.target.runner, requests)
    fast = drafted(models, drafter, requests)
    assert fast.transcript.emitted == plain.transcript.emitted
    assert fast.transcript.rows == plain.transcript.rows
    # A drafter on the wrong layers, positions or ids has next to none right.
    num_passes = fast.events["drafted"] / drafter.facts.max_draft_length
    assert fast.events["accepted"] > num_passes / 2


def test_what_is_accepted_does_not_depend_on_who_runs_beside(models, drafter, requests):
    together = drafted(models, drafter, requests)
    alone = [drafted(models, drafter, [request]) for request in requests]
    for event in ("drafted", "accepted"):
        assert together.events[event] == sum(one.events[event] for one in alone)

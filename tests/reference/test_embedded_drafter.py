"""The drafter that is shipped: the embedded model's own, within its size, and worth its pass."""

import pytest
import torch
from safetensors import safe_open

from benchmarks.prompts import Chat
from benchmarks.rigs.served import Manner, Served, served
from dflash.config import EngineConfig, KVCacheConfig
from dflash.drafters.choice import EMBEDDED_DRAFTER
from dflash.load import LoadedModels, load_models
from dflash.plan import ContextMode, DraftPlan, FixedPlanner
from dflash.request import GenerateRequest, SamplingParams
from dflash.train.prompts.mix import held_out_prompts

MOST_BYTES = 25_000_000
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


def drafted(models: LoadedModels, requests: list[GenerateRequest]) -> Served:
    length = models.drafter.facts.max_draft_length
    planner = FixedPlanner(DraftPlan(length, context=ContextMode.WARM))
    return served(models.target.runner, requests, Manner(drafter=models.drafter, planner=planner))


def test_it_fits_and_holds_bfloat16_weights_and_a_map_of_ids():
    path = EMBEDDED_DRAFTER / "model.safetensors"
    assert path.stat().st_size <= MOST_BYTES
    with safe_open(path, framework="pt") as file:
        types = {name: file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118
    assert types.pop("d2t") == torch.int64
    assert set(types.values()) == {torch.bfloat16}


def test_the_default_settings_load_it(models):
    assert models.drafter is not None
    assert models.speculation.drafter == EMBEDDED_DRAFTER.name


def test_its_drafts_are_worth_a_pass_and_change_no_bit(models, requests):
    plain = served(models.target.runner, requests)
    fast = drafted(models, requests)
    assert fast.transcript.emitted == plain.transcript.emitted
    assert fast.transcript.rows == plain.transcript.rows
    # A drafter on the wrong layers, positions or ids has next to none right.
    num_passes = fast.events["drafted"] / models.drafter.facts.max_draft_length
    assert fast.events["accepted"] > num_passes / 2


def test_what_is_accepted_does_not_depend_on_who_runs_beside(models, requests):
    together = drafted(models, requests)
    alone = [drafted(models, [request]) for request in requests]
    for event in ("drafted", "accepted"):
        assert together.events[event] == sum(one.events[event] for one in alone)

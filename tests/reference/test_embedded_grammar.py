"""The embedded model under a schema: valid JSON, and no bit of it is another's doing."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tokenizers import Tokenizer

from benchmarks.prompts import Chat
from benchmarks.rigs.served import Manner, Served, served
from benchmarks.rigs.spelling import json_grammar
from dflash.config import Dtype, EngineConfig, KVCacheConfig
from dflash.grammar.compiler import GrammarCompiler
from dflash.load import LoadedModels, load_models
from dflash.plan import Arm, DraftPlan, FixedPlanner
from dflash.request import GenerateRequest, SamplingParams

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 16},
        "country": {"enum": ["France", "Japan", "Peru"]},
        "inhabitants": {"type": "integer", "minimum": 0, "maximum": 40_000_000},
    },
    "required": ["city", "country", "inhabitants"],
    "additionalProperties": False,
}
GRAMMAR = json_grammar(SCHEMA)
MAX_TOKENS = 64


@pytest.fixture(scope="module", params=[Dtype.BFLOAT16, Dtype.FLOAT32])
def models(request: pytest.FixtureRequest) -> LoadedModels:
    memory = KVCacheConfig(memory_gib=0.25)
    return load_models(
        EngineConfig(num_threads=1, kv_cache=memory, dtype=request.param, max_model_len=1024)
    )


@pytest.fixture(scope="module")
def grammars(models) -> GrammarCompiler:
    return GrammarCompiler(models.target.model_folder, models.target.runner.facts)


@pytest.fixture(scope="module")
def requests(models) -> list[GenerateRequest]:
    chat = Chat(models.target.model_folder)
    asked = ["Describe a city as JSON.", "A city of your choice, please.", "Hi", "Name a town."]
    return [
        GenerateRequest(
            request_id=str(index),
            prompt_token_ids=tuple(chat.token_ids([question])),
            max_tokens=MAX_TOKENS if index < 3 else 12,
            sampling=SamplingParams(temperature=float(index == 1)),
            seed=index,
            # One without a grammar runs beside them.
            grammar=GRAMMAR if index < 3 else None,
        )
        for index, question in enumerate(asked)
    ]


@pytest.fixture(scope="module")
def plain(models, grammars, requests) -> Served:
    return served(models.target.runner, requests, Manner(grammars=grammars))


def test_what_ended_by_itself_matches_the_schema(models, plain: Served):
    tokenizer = Tokenizer.from_file(str(Path(models.target.model_folder) / "tokenizer.json"))
    texts = [tokenizer.decode(plain.transcript.emitted[str(index)]) for index in range(3)]
    for index, text in enumerate(texts):
        assert len(plain.transcript.emitted[str(index)]) < MAX_TOKENS, text
        Draft202012Validator(SCHEMA).validate(json.loads(text))


@pytest.mark.parametrize("place", [0, 1], ids=["dflash2", "mtp"])
def test_drafts_change_no_bit_of_it(models, grammars, requests, plain: Served, place: int):
    drafter = models.drafters[place]
    arm = Arm(drafter.facts.name, drafter.facts.max_draft_length)
    planner = FixedPlanner(DraftPlan(arm, warm=frozenset({arm.drafter})))
    manner = Manner(drafters=[drafter], planner=planner, grammars=grammars, shuffle_seed=3)
    fast = served(models.target.runner, requests, manner)
    assert fast.transcript.emitted == plain.transcript.emitted
    assert fast.transcript.rows == plain.transcript.rows
    assert fast.events["accepted"] > 10


def test_alone_and_behind_what_another_engine_emitted_the_ids_are_the_same(
    models, grammars, requests, plain: Served
):
    request = requests[1]
    whole = tuple(plain.transcript.emitted["1"])
    for count in (0, 9):
        rest = replace(request, emitted_token_ids=whole[:count])
        one = served(models.target.runner, [rest], Manner(grammars=grammars))
        assert tuple(one.transcript.emitted["1"]) == whole[count:]

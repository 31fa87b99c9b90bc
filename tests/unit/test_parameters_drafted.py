"""What docs/compatibility.md says of drafters: no parameter's answer depends on who drafts."""

from contextlib import suppress
from dataclasses import replace

import pytest

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.script_drafter import random_wrong
from benchmarks.rigs.spelling import compiler_of, spelling_tokenizer
from deployments.openai.compatibility import PROBES, Fields, engine_requests
from deployments.openai.errors import RefusedError
from deployments.openai.schemas import ChatBody, CompletionBody
from dflash.plan import DraftPlan, FixedPlanner
from dflash.request import GenerateRequest
from tests.rigs.drafted import PREFIX, VOCAB, arm_of, assert_right, total

GRAMMARS = compiler_of(spelling_tokenizer(), HashLM().facts)


def asked(probe: Fields) -> set[GenerateRequest]:
    """Return what the engine is asked by whichever endpoints serve these fields."""
    found: set[GenerateRequest] = set()
    for body_type in (ChatBody, CompletionBody):
        with suppress(RefusedError):
            found.update(engine_requests(body_type, {"seed": 3, "stream": True, **probe}))
    return {
        replace(
            request,
            request_id=str(request.choice),
            prompt_token_ids=PREFIX[:20],
            max_tokens=min(request.max_tokens, 32),
        )
        for request in found
    }


@pytest.mark.parametrize("drafter", ["dflash2", "mtp"])
@pytest.mark.parametrize("name", PROBES)
def test_every_parameter_gives_what_plain_decoding_gives_while_a_drafter_drafts(
    name: str, drafter: str
):
    for probe in PROBES[name]:
        for request in asked(probe):
            plan = DraftPlan(arm_of(4, drafter), warm=frozenset({drafter}))
            script = {drafter: random_wrong(0.3, VOCAB, seed=5)}
            drive = Drive(script=script, planner=FixedPlanner(plan), grammars=GRAMMARS)
            drive.submit(request)
            while drive.engine.has_work:
                drive.step()
            assert_right(drive, request)
            assert (total(drive, "num_drafting") > 0) == (request.max_draft_length != 0)


def test_both_endpoints_and_every_choice_are_asked():
    assert len(asked({"n": 8})) == 8
    assert {each.sampling.num_logprobs for each in asked({"logprobs": True})} == {0}
    assert {each.sampling.num_logprobs for each in asked({"logprobs": 5})} == {5}
    assert asked({"suffix": "x"}) == set()

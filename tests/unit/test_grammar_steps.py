"""A grammar under speculation: the ids of plain decoding, whatever is drafted, and they match."""

import json
from dataclasses import replace

import pytest
import torch

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.script_drafter import Script, all_right, eos_at, random_wrong, right_up_to
from benchmarks.rigs.serial import serial_answer
from benchmarks.rigs.spelling import (
    ANY_OBJECT,
    RECORD,
    compiler_of,
    json_grammar,
    spelling_tokenizer,
)
from dflash.errors import RequestError
from dflash.grammar import compiler as compiler_module
from dflash.grammar.compiler import GrammarCompiler
from dflash.grammar.matcher import DEAD_END, Matcher
from dflash.grammar.tagged import TaggedJson
from dflash.grammar.text import MAX_GRAMMAR_CHARACTERS, Grammar, GrammarKind
from dflash.request import FinishReason, GenerateRequest, SamplingParams
from dflash.stats import WhyPlain
from tests.rigs.drafted import VOCAB, always, assert_right, limits, places, speculation, total

TOKENIZER = spelling_tokenizer()
FACTS = HashLM().facts
GRAMMARS = compiler_of(TOKENIZER, FACTS)


CALL = {
    "type": "object",
    "properties": {"name": {"enum": ["look", "go"]}, "arguments": {"type": "object"}},
    "required": ["name", "arguments"],
    "additionalProperties": False,
}
CALLS = Grammar(
    GrammarKind.TAGGED_JSON,
    TaggedJson("<tool_call>", "</tool_call>", "\n", CALL, "\n", is_free=False).written(),
    "tools",
)


def asked(
    name: str, grammar: Grammar | None = RECORD, max_tokens: int = 400, **sampling
) -> GenerateRequest:
    params = SamplingParams(**{"temperature": 0.0, **sampling})
    seed = int.from_bytes(name.encode()[:6], "big")
    return GenerateRequest(name, tuple(range(1, 30)), max_tokens, params, seed, grammar=grammar)


def drive(script: Script = all_right, width: int = 7, **settings) -> Drive:
    return Drive(script=script, planner=always(width), **{"grammars": GRAMMARS, **settings})


def text_of(rig: Drive, name: str) -> str:
    return TOKENIZER.decode(list(rig.answer(name).token_ids))


def assert_valid(rig: Drive, name: str) -> None:
    assert rig.answer(name).finish_reason is FinishReason.STOP
    record = json.loads(text_of(rig, name))
    assert {"name", "age"} <= record.keys() <= {"name", "age", "tags"}
    assert isinstance(record["name"], str)
    assert 0 <= record["age"] <= 150
    assert set(record.get("tags", ())) <= {"a", "b", "ab"}


@pytest.mark.parametrize("temperature", [0.0, 0.8, 1.5])
@pytest.mark.parametrize("count", range(8))
def test_drafts_that_are_wrong_from_any_position_on_change_nothing(count: int, temperature: float):
    rig = drive(right_up_to(count, VOCAB))
    requests = [asked(f"r{index}", temperature=temperature) for index in range(3)]
    rig.submit(*requests)
    rig.finish()
    assert_right(rig, *requests)
    for each in requests:
        assert_valid(rig, each.request_id)
    assert total(rig, "num_accepted_tokens") > 0 or count == 0


def forbidden_at(index: int) -> Script:
    """Propose right ids but for one that no JSON text has outside a string."""
    (wrong,) = TOKENIZER.encode("~").ids

    def script(row, right: tuple[int, ...]) -> tuple[int, ...]:
        return (*right[:index], wrong, *right[index + 1 :])[: row.num_drafts]

    return script


@pytest.mark.parametrize("index", range(7))
def test_a_forbidden_draft_token_and_what_follows_it_is_not_computed(index: int):
    widths: list[int] = []
    rig = drive(forbidden_at(index))
    ages = json_grammar({"type": "array", "items": {"type": "integer"}, "minItems": 40})
    request = asked("r", ages, max_tokens=120)
    rig.engine._observe = lambda schedule, _: widths.extend(
        turn.num_drafts for turn in schedule.turns if turn.is_decoding
    )
    rig.submit(request)
    rig.finish()
    assert_right(rig, request)
    assert max(widths) == index
    # The draft is graded up to the forbidden token all the same, so the policy learns of it.
    graded, accepted = (
        [a + b for a, b in zip(places(rig, f"verified_{n}"), places(rig, f"free_{n}"), strict=True)]
        for n in ("graded", "accepted")
    )
    assert graded[index] > 0
    assert accepted[index] == 0
    reasons = speculation(rig, "r").num_plain
    assert reasons.get(WhyPlain.GRAMMAR, 0) == (len(widths) - 1 if index == 0 else 0)


@pytest.mark.parametrize("index", range(7))
def test_an_end_of_sequence_in_a_draft_ends_nothing_early(index: int):
    rig = drive(eos_at(index, 0))
    request = asked("r", temperature=0.7)
    rig.submit(request)
    rig.finish()
    assert_right(rig, request)
    assert_valid(rig, "r")


def test_neighbours_preemption_and_every_other_parameter_change_nothing():
    rig = drive(random_wrong(0.3, VOCAB, seed=5), num_pages=20)
    everything = {
        "temperature": 1.0,
        "top_k": 30,
        "top_p": 0.95,
        "min_p": 0.01,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.3,
        "repetition_penalty": 1.2,
        "num_logprobs": 3,
        "logit_bias": ((3, 1.0),),
        "stop_token_ids": (92,),
    }
    requests = [
        *(asked(f"r{index}", max_tokens=90) for index in range(4)),
        *(asked(f"s{index}", ANY_OBJECT, max_tokens=90, temperature=0.9) for index in range(3)),
        *(asked(f"t{index}", max_tokens=90, **everything) for index in range(3)),
        *(asked(f"v{index}", CALLS, max_tokens=90, temperature=0.8) for index in range(2)),
        *(asked(f"u{index}", None, max_tokens=90, temperature=0.5) for index in range(4)),
    ]
    rig.submit(*requests)
    rig.engine.set_limits(limits(12, 64))
    rig.finish()
    assert_right(rig, *requests)
    assert total(rig, "num_preempted") > 0
    assert text_of(rig, "v0").startswith("<tool_call>\n{")


def test_an_engine_goes_on_behind_what_another_one_emitted():
    sampling = {"temperature": 0.9, "presence_penalty": 0.5, "frequency_penalty": 0.2}
    whole = asked("r", max_tokens=60, **sampling)
    answer = serial_answer(HashLM(), whole, GRAMMARS)
    assert len(answer.token_ids) > 12
    for count in range(1, len(answer.token_ids), 3):
        rig = drive(random_wrong(0.2, VOCAB, seed=count))
        rig.submit(whole)
        rig.outputs.clear()
        rest = replace(whole, request_id="rest", emitted_token_ids=answer.token_ids[:count])
        rig.submit(rest)
        rig.engine.abort("r")
        rig.finish()
        given = rig.answer("rest")
        assert given == replace(answer, token_ids=answer.token_ids[count:])


def test_logprobs_are_those_of_the_model_without_the_grammar():
    rig = drive()
    request = asked("r", max_tokens=1, num_logprobs=2)
    rig.submit(request)
    rig.finish()
    (entry,) = rig.answer("r").logprobs
    raw = torch.log_softmax(rig.model.next_logits(request.prompt_token_ids)[0].double(), dim=0)
    (chosen,) = rig.answer("r").token_ids
    assert entry.logprob == pytest.approx(float(raw[chosen]))
    assert entry.top[0][1] == pytest.approx(float(raw.max()))
    assert entry.top[0][0] != chosen


def without(character: str) -> GrammarCompiler:
    """Return a compiler for a vocabulary that cannot spell a character."""
    vocabulary = json.loads(TOKENIZER.to_str())
    tokens = vocabulary["model"]["vocab"]
    vocabulary["model"]["vocab"] = {
        ("\u0120" * id_ if character in token else token): id_ for token, id_ in tokens.items()
    }
    return compiler_of(type(TOKENIZER).from_str(json.dumps(vocabulary)), FACTS)


def test_a_dead_end_ends_its_own_request_with_the_reason():
    rig = drive(grammars=without("]"))
    numbers = json_grammar({"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 2})
    rig.submit(asked("dead", numbers), asked("well", None, max_tokens=80))
    rig.finish()
    last = rig.outputs["dead"][-1]
    assert (last.finish_reason, last.error) == (FinishReason.ERROR, f"response_format: {DEAD_END}")
    assert last.error_field == "response_format"
    assert_right(rig, asked("well", None, max_tokens=80))


def test_an_output_over_the_librarys_bounds_ends_its_own_request(monkeypatch: pytest.MonkeyPatch):
    few = {**compiler_module._LIMITS, "max_lexer_states": 60}
    monkeypatch.setattr(compiler_module, "_LIMITS", few)
    rig = drive(grammars=compiler_of(TOKENIZER, FACTS))
    wide = json_grammar({"type": "string", "pattern": "^(.*a.{9}|.*b.{8}|.*c.{7}|.*d.{6})*$"})
    rig.submit(asked("wide", wide), asked("well", None, max_tokens=60))
    rig.finish()
    last = rig.outputs["wide"][-1]
    assert (last.finish_reason, last.error_field) == (FinishReason.ERROR, "response_format")
    assert "simplify its patterns" in (last.error or "")
    assert_right(rig, asked("well", None, max_tokens=60))


def test_a_fault_of_the_library_ends_its_own_request(monkeypatch: pytest.MonkeyPatch):
    rig = drive()
    rig.submit(asked("well", None, max_tokens=40), asked("faulty"))
    rig.step(4)
    monkeypatch.setattr(Matcher, "masks", lambda *_: 1 / 0)
    rig.finish()
    assert rig.outputs["faulty"][-1].finish_reason is FinishReason.ERROR
    assert_right(rig, asked("well", None, max_tokens=40))


def test_bias_that_bans_what_the_grammar_needs_says_so():
    braces = tuple((id_, -100.0) for word, id_ in TOKENIZER.get_vocab().items() if "{" in word)
    rig = drive()
    rig.submit(asked("r", logit_bias=braces))
    rig.finish()
    assert "the grammar together ban" in (rig.outputs["r"][-1].error or "")


@pytest.mark.parametrize(("name", "value"), [("min_tokens", 3), ("ignore_eos", True)])
def test_what_would_go_on_behind_the_end_of_a_grammar_is_refused(name: str, value: int):
    with pytest.raises(RequestError, match="response_format says where the output ends") as refused:
        asked("r", **{name: value})
    assert refused.value.field == name


def test_an_engine_without_a_vocabulary_refuses_grammars():
    with pytest.raises(RequestError, match="no tokenizer") as refused:
        drive(grammars=None).engine.submit(asked("r"))
    assert refused.value.field == "response_format"


def test_a_grammar_has_a_size():
    with pytest.raises(RequestError, match=f"can have {MAX_GRAMMAR_CHARACTERS}"):
        json_grammar({"enum": ["x" * MAX_GRAMMAR_CHARACTERS]})

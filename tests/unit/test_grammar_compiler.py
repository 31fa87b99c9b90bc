"""Grammars are compiled within bounds, kept, and refused by name with the library's reason."""

import json
from pathlib import Path

import pytest

from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.spelling import END, compiler_of, json_grammar, spelling_tokenizer
from dflash.errors import RequestError
from dflash.grammar import compiler as compiler_module
from dflash.grammar import trial
from dflash.grammar.compiler import GrammarCompiler
from dflash.grammar.matcher import Matcher
from dflash.grammar.tagged import TaggedJson
from dflash.grammar.text import Grammar, GrammarKind

FACTS = HashLM().facts
TOKENIZER = spelling_tokenizer()


@pytest.fixture(scope="module")
def grammars() -> GrammarCompiler:
    return compiler_of(TOKENIZER, FACTS)


def refusal(grammars: GrammarCompiler, schema: object) -> str:
    with pytest.raises(RequestError) as refused:
        grammars.matcher(json_grammar(schema))
    assert refused.value.field == "response_format"
    return str(refused.value)


def accepts(matcher: Matcher, text: str, tokenizer=TOKENIZER) -> bool:
    """Whether a text may be emitted in full and end there."""
    *before, last = matcher.masks([], tokenizer.encode(text).ids)
    return len(before) == len(tokenizer.encode(text).ids) and last.allows(
        tokenizer.token_to_id(END)
    )


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "array", "uniqueItems": True}, 'Unimplemented keys: ["uniqueItems"]'),
        ({"x-guidance": {"lenient": True}, "not": {}}, 'Unimplemented keys: ["not"]'),
        ({"type": "word"}, "Invalid type: word"),
        ({"type": "string", "format": "colour"}, "Unknown format: colour"),
        ({"type": "string", "pattern": "["}, "unclosed character class"),
        ({"$ref": "https://example.org/s.json"}, "retrieving it failed"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "no JSON text can match"),
        ({"enum": []}, "Unsatisfiable schema"),
    ],
)
def test_what_cannot_be_enforced_is_refused_with_its_name(grammars, schema, reason: str):
    message = refusal(grammars, schema)
    assert message.startswith("response_format cannot be enforced: ")
    assert reason in message
    assert "<" not in message


def test_a_schema_that_takes_too_long_is_refused_and_not_tried_again(
    grammars: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(trial, "MAX_SECONDS", 1.0)
    patterns = [{"pattern": f"[a-z]{{{count},}}{count}"} for count in range(1, 40)]
    schema = {"allOf": [{"type": "string", **each} for each in patterns]}
    assert "takes over 1 s to compile" in refusal(grammars, schema)
    monkeypatch.setattr(compiler_module, "problem_of", None)
    assert "takes over 1 s to compile" in refusal(grammars, schema)


def test_a_schema_that_kills_its_compiler_is_refused(
    grammars: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(trial, "__file__", str(Path(trial.__file__).with_name("gone.py")))
    assert "fault of the library" in refusal(grammars, {"const": "unseen"})


def test_known_grammars_are_kept_up_to_a_number(monkeypatch: pytest.MonkeyPatch):
    tried: list[str] = []
    monkeypatch.setattr(compiler_module, "problem_of", lambda schema, _: tried.append(schema))
    monkeypatch.setattr(compiler_module, "MAX_KEPT", 3)
    grammars = compiler_of(TOKENIZER, FACTS)
    for value in (0, 1, 2, 0, 3, 0, 1):
        grammars.matcher(json_grammar({"const": value}))
    assert [json.loads(schema)["const"] for schema in tried] == [0, 1, 2, 3, 1]


def test_two_requests_of_one_grammar_do_not_share_a_place(grammars: GrammarCompiler):
    first, second = (grammars.matcher(json_grammar({"const": 12})) for _ in range(2))
    first.masks(TOKENIZER.encode("1").ids)
    assert second.masks([])[0].allows(TOKENIZER.encode("1").ids[0])
    assert not second.masks([])[0].allows(TOKENIZER.encode("2").ids[0])


def test_white_space_is_allowed_and_does_not_go_on_for_ever(grammars: GrammarCompiler):
    def matcher() -> Matcher:
        return grammars.matcher(json_grammar({"type": "array", "items": {"const": 1}}))

    assert accepts(matcher(), "[1,1]")
    assert accepts(matcher(), "[\n    1,\n    1\n]")
    assert not accepts(matcher(), "[" + " " * 50 + "1]")


@pytest.mark.parametrize(
    ("file", "reason"),
    [(None, "No such file"), ("{}", "tokenizer.json cannot be used"), ("[", "cannot be used")],
)
def test_a_model_without_a_usable_tokenizer_serves_no_grammar(
    file: str | None, reason: str, tmp_path: Path
):
    if file is not None:
        (tmp_path / "tokenizer.json").write_text(file)
    message = refusal(GrammarCompiler(tmp_path, FACTS), {})
    assert message.startswith("response_format cannot be served with this model: ")
    assert reason in message


def test_a_model_without_an_end_serves_no_grammar(tmp_path: Path):
    endless = GrammarCompiler(tmp_path, HashLM(eos_token_ids=()).facts)
    assert "no end-of-sequence token" in refusal(endless, {})


CALL = {
    "type": "object",
    "properties": {"name": {"const": "f"}, "arguments": {"type": "object"}},
    "required": ["name", "arguments"],
    "additionalProperties": False,
}


def tagged(between: str | None = None, *, is_free: bool = False) -> Grammar:
    value = TaggedJson("<call>", "</call>", "\n", CALL, between, is_free)
    return Grammar(GrammarKind.TAGGED_JSON, value.written(), "tools")


def one(arguments: str = "{}") -> str:
    return f'<call>\n{{"name": "f", "arguments": {arguments}}}\n</call>'


@pytest.fixture(scope="module", params=["letters", "tokens"])
def speller(request: pytest.FixtureRequest):
    """Tags spelt in letters, or tokens of their own as in Qwen's vocabulary."""
    tokenizer = spelling_tokenizer(249)
    if request.param == "tokens":
        tokenizer.add_tokens(["<call>", "</call>"])
    return tokenizer, compiler_of(tokenizer, FACTS)


def matches(speller, grammar: Grammar, text: str) -> bool:
    tokenizer, grammars = speller
    return accepts(grammars.matcher(grammar), text, tokenizer)


def test_one_tagged_text_and_no_more(speller):
    assert matches(speller, tagged(), one())
    assert matches(speller, tagged(), one('{"a": [1, "</call>"]}'.replace("</call>", "x")))
    assert not matches(speller, tagged(), one() + "\n" + one())
    assert not matches(speller, tagged(), "so " + one())
    assert not matches(speller, tagged(), one().replace('"f"', '"g"'))
    assert not matches(speller, tagged(), "")


def test_many_tagged_texts_with_what_stands_between(speller):
    assert matches(speller, tagged("\n"), one())
    assert matches(speller, tagged("\n"), "\n".join([one()] * 3))
    assert not matches(speller, tagged("\n"), one() + one())


def test_nothing_is_looked_at_behind_the_end(speller):
    tokenizer, grammars = speller
    drafts = tokenizer.encode("so").ids + [tokenizer.token_to_id(END)] * 2
    masks = grammars.matcher(tagged(is_free=True)).masks([], drafts)
    assert len(masks) == len(tokenizer.encode("so").ids) + 1


def test_tagged_texts_in_free_text(speller):
    free = tagged(is_free=True)
    assert matches(speller, free, "")
    assert matches(speller, free, 'no call, only {"text"} and <b>')
    assert matches(speller, free, f"first\n{one()} then {one()} done")
    assert not matches(speller, free, "broken <call>\n{}")
    assert not matches(speller, free, f"right {one()} wrong <call>")

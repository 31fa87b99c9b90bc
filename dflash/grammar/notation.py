"""Grammars in the notation of the library that matches them."""

import json
from itertools import groupby
from typing import Final

from llguidance import LLMatcher, LLTokenizer

from dflash.grammar.tagged import TaggedJson
from dflash.grammar.text import Grammar, GrammarKind

# A schema keyword that the library cannot enforce is refused. White space is bounded, for small
# models like to write it for ever; a line break and a deep indent fit.
_JSON_OPTIONS: Final = {
    "x-guidance": {"lenient": False, "whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,40}"}
}


def schema_of(grammar: Grammar) -> str:
    """Return the JSON Schema in a grammar as the library reads it."""
    if grammar.kind is GrammarKind.JSON_SCHEMA:
        schema = json.loads(grammar.text)
    else:
        schema = TaggedJson.read(grammar.text).schema
    return json.dumps({**schema, **_JSON_OPTIONS})


def rules_of(grammar: Grammar, tokenizer: LLTokenizer) -> str:
    """Return the grammar as the library reads it, for a model's own tokens."""
    if grammar.kind is GrammarKind.JSON_SCHEMA:
        return LLMatcher.grammar_from_json_schema(schema_of(grammar))
    tagged = TaggedJson.read(grammar.text)
    begin, padding, end = (
        _spelt(text, tokenizer) for text in (tagged.begin, tagged.padding, tagged.end)
    )
    if tagged.is_free:
        rules = ["start: (begun inside)* text", *_free_rules(begin)]
    else:
        more = "" if tagged.between is None else f" ({_spelt(tagged.between, tokenizer)} one)*"
        rules = [f"start: one{more}", f"one: {begin} inside"]
    inside = f"inside: {padding} json {padding} {end}"
    return "\n".join((*rules, inside, f"json: %json {schema_of(grammar)}"))


def _free_rules(begin: str) -> list[str]:
    """Return the rules of free text, and of such text up to and with a tag."""
    if begin.startswith("<["):
        # One token stands for the tag, so any other is text.
        return [f"begun: text {begin}", f"text: <[^{begin[2:]}*"]
    return [f"begun[lazy]: TEXT {begin}", "text: TEXT", r"TEXT: /(.|\n)*/"]


def _spelt(text: str, tokenizer: LLTokenizer) -> str:
    """Return a text as literals and, for words of it that are tokens of their own, those."""
    parts: list[str] = []
    token_ids = tokenizer.tokenize_str(text, parse_special=True)
    for is_word, run in groupby(token_ids, tokenizer.is_special_token):
        if is_word:
            parts += [f"<[{token_id}]>" for token_id in run]
        else:
            parts.append(json.dumps(tokenizer.decode_str(list(run))))
    return " ".join(parts)

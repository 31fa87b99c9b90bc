"""`response_format` reaches the engine as a grammar, or is refused by the name of what is wrong."""

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel

from deployments.streams import OpenStreams
from dflash.grammar.text import Grammar, GrammarKind
from dflash.request import FinishReason, TokenOutput
from tests.rigs.http_server import FakeServer


class Person(BaseModel):
    name: str
    age: int


HELLO: Any = [{"role": "user", "content": "Hello"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA}}


def grammar_of(server: FakeServer) -> Grammar | None:
    return server.loop.submitted[-1].grammar


@pytest.mark.parametrize("strict", [None, False, True])
@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_a_schema_is_what_the_engine_enforces(
    server: FakeServer, http: httpx.Client, path: str, strict: bool | None
):
    given = {**FORMAT, "json_schema": {**FORMAT["json_schema"], "strict": strict}}
    body = {"model": "fake", "messages": HELLO, "prompt": "Hello", "response_format": given}
    assert http.post(f"/v1/{path}", json=body).status_code == 200
    assert grammar_of(server) == Grammar(
        GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA), "response_format"
    )


def test_any_object_is_a_schema_too_and_text_is_none(
    server: FakeServer, openai_client: openai.OpenAI
):
    for kind, schema in (("json_object", {"type": "object"}), ("text", None)):
        openai_client.chat.completions.create(
            model="fake", messages=HELLO, response_format={"type": kind}, max_tokens=3
        )
        grammar = grammar_of(server)
        assert (None if grammar is None else json.loads(grammar.text)) == schema


def test_the_clients_own_way_to_ask_for_a_model_of_it(
    server: FakeServer, openai_client: openai.OpenAI
):
    server.loop.say('{"name": "Ada", "age": 36}')
    answer = openai_client.chat.completions.parse(
        model="fake", messages=HELLO, response_format=Person
    )
    assert answer.choices[0].message.parsed == Person(name="Ada", age=36)
    grammar = grammar_of(server)
    assert grammar is not None
    assert json.loads(grammar.text)["required"] == ["name", "age"]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "string", "pattern": "(?=a)"}, "look-ahead"),
    ],
)
def test_what_a_schema_has_that_cannot_be_enforced_is_named(
    server: FakeServer, openai_client: openai.OpenAI, schema: dict[str, Any], reason: str
):
    given: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    with pytest.raises(openai.BadRequestError, match=reason) as refused:
        openai_client.chat.completions.create(model="fake", messages=HELLO, response_format=given)
    assert (refused.value.param, refused.value.code) == ("response_format", "invalid_parameter")
    assert not server.loop.submitted


@pytest.mark.parametrize(("name", "value"), [("min_tokens", 2), ("ignore_eos", True)])
def test_what_would_go_on_behind_the_json_is_refused(
    openai_client: openai.OpenAI, name: str, value: int
):
    with pytest.raises(openai.BadRequestError, match="says where the output ends") as refused:
        openai_client.chat.completions.create(
            model="fake", messages=HELLO, response_format=FORMAT, extra_body={name: value}
        )
    assert refused.value.param == name


def test_an_output_that_the_grammar_leads_nowhere_is_the_requests_fault():
    output = TokenOutput("r", (), None, FinishReason.ERROR, error="no", error_field="tools")
    streams = OpenStreams(lease_s=1.0)
    inbox = streams.open("r", 0.0)
    streams.deliver([output])
    error = asyncio.run(inbox.take()).error
    assert error is not None
    assert (error.status, error.param, error.message) == (400, "tools", "no")

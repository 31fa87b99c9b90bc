"""Each field of each body, with values that are usual, on the edge, wrong, null and huge.

A field without a row fails, so none is added that nobody tries.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from deployments.openai.schemas import ChatBody, CompletionBody
from deployments.openai.tokenization import DetokenizeBody, TokenizeBody
from deployments.openai.tokenizer import TextTokenizer
from dflash.request import GenerateRequest
from tests.rigs.http_server import FakeServer

VOCAB = 320
INFINITY, NAN = float("inf"), float("nan")
HELLO = [{"role": "user", "content": "hello"}]


@dataclass(frozen=True)
class Row:
    """Values of one field.

    Attributes:
        valid: Usual ones; the first shows an effect.
        edge: The last that are served.
        wrong: Of another type or kind.
        huge: Too large, too many or too long; none where nothing is.
        beside: Fields that it needs beside it.
        acts: Whether a request or answer shows it, here.
    """

    valid: Sequence[object]
    edge: Sequence[object] = ()
    wrong: Sequence[object] = ()
    huge: Sequence[object] = ()
    beside: dict[str, object] = field(default_factory=dict)
    acts: bool = True


def schema(value: object, **fields: object) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": value, **fields}}


def tool(name: object = "look", **function: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, **function}}


COUNT = Row([4], [1], [0, -1, 1.5, "5", True, [], {}], [10**6, 1e18, 10**18])
# The fake engine's tokenizer has no start ids; `test_start_ids_...` sees them.
START_IDS = Row([True, False], wrong=["true", 1, []], acts=False)
SHARED = {
    "model": Row(["fake"], wrong=[1, [], "", "other", "\ud800"], huge=["a" * 10**6], acts=False),
    "max_tokens": COUNT,
    "max_completion_tokens": COUNT,
    "temperature": Row([0.5], [0, 100], [-0.1, "1", True, NAN, []], [101, INFINITY, 1e400]),
    "top_p": Row([0.5], [1, 5e-324], [0, -0.5, "1", NAN, True], [1.5, 1e300]),
    "top_k": Row([5], [0, -1, 10**6], [-2, 1.5, "4", True], [10**6 + 1, 10**30]),
    "min_p": Row([0.5], [0, 1], [-0.1, "0", NAN], [1.1, INFINITY]),
    "presence_penalty": Row([0.5], [-2, 2, 0], [-2.1, "0", []], [2.1, 1e300, INFINITY]),
    "frequency_penalty": Row([0.5], [-2, 2, 0], [-2.1, False], [3, -INFINITY]),
    "repetition_penalty": Row([1.5], [0.01, 10], [0, -1, 5e-324, 0.0099, NAN, "1"], [11, INFINITY]),
    "logit_bias": Row(
        [{"7": 1}],
        [{}, {"0": -100, str(VOCAB - 1): 100}],
        [[1], {"x": 1}, {"-1": 1}, {"1": "a"}, {"²": 1}, {"1": NAN}, {"\ud800": 1}, {"1": None}],
        [{str(VOCAB): 1}, {"1": 101}, {"1": 1e400}, {"1" * 5000: 1}],
    ),
    "seed": Row([7], [0, 2**64 - 1], [-1, 1.5, "7", True], [2**64, 10**100]),
    "stop": Row(
        ["fox", ["fox"]],
        [[], ["a"] * 16, "x" * 256],
        [1, [1], [""], "", [None], {}, "\ud800"],
        [["a"] * 17, ["a"] * 100_000, ["x" * 257], "x" * 10**6],
    ),
    "stop_token_ids": Row(
        [[7]], [[], [0, VOCAB - 1], [7] * 64], [[-1], ["1"], [True], "1", {}], [[VOCAB], [7] * 65]
    ),
    "min_tokens": Row([2], [0, 10**6], [-1, "1", True, 1.5], [10**6 + 1, 10**30]),
    "ignore_eos": Row([True], [False], ["true", 1, []]),
    "n": Row([2], [1, 8], [0, -1, "1", True, 1.0], [9, 10**6, 10**30]),
    "stream": Row([True], [False], ["yes", 1, []]),
    "metrics": Row([True], [False], ["yes", 1, []]),
    "stream_options": Row(
        [{"include_usage": True}],
        [{}, {"include_usage": False}, {"include_usage": None, "new_option": 1}],
        ["x", [], {"include_usage": 1}, {"include_usag": True}],
        beside={"stream": True},
    ),
    "response_format": Row(
        [{"type": "json_object"}, schema({"type": "object"})],
        [{"type": "text"}, schema({}), schema({"enum": ["a" * 120_000]}, strict=False)],
        [
            *("text", [], {}, {"type": "xml"}, {"type": None}, {"type": "json_schema"}),
            *({"type": "json_object", "schema": {}}, {**schema({}), "type": "text"}),
            *(schema("object"), schema(True), schema(None), schema({}, strict="yes")),
            *(schema({"type": "word"}), schema({"not": {}}, strict=False)),
            schema({"title": "\ud800"}),
        ],
        [schema({"enum": ["a" * 140_000]})],
    ),
    "user": Row(["ann"], ["", "a" * 10**6, "\ud800"], [5, [], {}], acts=False),
    "speculation": Row(
        [{"mode": "off"}, {"mode": "auto"}],
        [{}, {"max_draft_len": 0}, {"max_draft_len": 10**6}],
        ["off", [], {"mode": "of"}, {"max_draft_len": -1}, {"max_draft_len": "1"}, {"length": 1}],
    ),
}
MESSAGES = Row(
    [[{"role": "system", "content": "be brief"}, *HELLO]],
    [HELLO * 8, [{"role": "assistant", "content": None}, *HELLO]],
    [[], "hello", {}, [1], [{}], [{"role": "robot", "content": "x"}], [{"role": "user"}]],
    [HELLO * 4097, [{"role": "user", "content": "zq" * 10**6}]],
)
TEMPLATE = Row([{"thinks": True}], [{}], ["x", [], {"unread": 1}], [{"a" * 10**5: 1}])
CHAT = {
    **SHARED,
    "messages": MESSAGES,
    "add_special_tokens": START_IDS,
    "chat_template_kwargs": TEMPLATE,
    "tools": Row(
        [[tool(description="sees", parameters={"type": "object"})]],
        [[], [tool("a" * 64)], [tool("a"), tool("b", strict=True)]],
        [
            *("look", {}, [1], [{}], [tool(None)], [tool("a b")], [tool(""), tool("a" * 65)]),
            *([{"type": "web_search"}], [{"type": "function"}], [tool(parameters="object")]),
            *([tool(), tool()], [tool(strict=1)], [tool(description="\ud800")]),
            [tool(strict=True, parameters={"not": {}})],
        ],
        [[tool(f"f{index}") for index in range(129)]],
    ),
    "tool_choice": Row(
        ["required", tool()],
        ["auto", "none"],
        ["any", 1, [], {}, tool("other"), {"type": "function"}],
        beside={"tools": [tool()]},
    ),
    "parallel_tool_calls": Row(
        [False], [True], [1, "true", []], beside={"tools": [tool(strict=True)]}
    ),
    "logprobs": Row([True], [False], [1, "true", []]),
    "top_logprobs": Row([2], [0, 20], [-1, "1", True, 1.5], [21, 10**6], {"logprobs": True}),
}
COMPLETION = {
    **SHARED,
    "prompt": Row(
        ["the fox", ["the", "fox"], [7, 8], [[7], [8]]],
        ["x", [0, VOCAB - 1], ["a"] * 32],
        ["", [], [[]], [""], 5, {}, [1, "a"], [1.5], [True], [-1], "\ud800", [None], [["a"]]],
        [[VOCAB], [10**30], ["a"] * 33, [7] * 10**5, "zq" * 10**6],
    ),
    "add_special_tokens": START_IDS,
    "logprobs": Row([2], [0, 20], [-1, "1", True, 1.5], [21, 10**6]),
    "echo": Row([True], [False], [1, "true", []]),
    "best_of": Row([2], [2], [0, -1, "2", True, 1, 3], [9, 10**30], {"n": 2}, acts=False),
}
TOKENIZE = {
    "model": replace(SHARED["model"], beside={"prompt": "x"}),
    "prompt": Row(["the fox"], ["", "a" * 2**20], [5, [], {}, "\ud800"], ["a" * (2**20 + 1)]),
    "messages": replace(
        MESSAGES, huge=[HELLO * 4097, [{"role": "user", "content": "a" * (2**20 + 1)}]]
    ),
    # What a grammar could not enforce can be counted all the same.
    "tools": replace(CHAT["tools"], wrong=CHAT["tools"].wrong[:-1], beside={"messages": HELLO}),
    "add_special_tokens": replace(START_IDS, beside={"prompt": "x"}),
    "add_generation_prompt": Row([False], [True], [1, "x"], beside={"messages": HELLO}),
    "chat_template_kwargs": replace(TEMPLATE, beside={"messages": HELLO}),
    "return_token_strs": Row([True], [False], [1, "x"], beside={"prompt": "x"}),
}
DETOKENIZE = {
    "model": replace(SHARED["model"], beside={"tokens": [7]}),
    "tokens": Row(
        [[7, 8]],
        [[], [0, VOCAB - 1]],
        [5, "7", [-1], [True], [1.5], [[7]]],
        [[VOCAB], [7] * 262_145],
    ),
}
NEEDED = {"model": "fake", "seed": 5}
# Which path takes a body, what every request to it has, and the rows of its fields.
BODIES: dict[type[BaseModel], tuple[str, dict[str, Any], dict[str, Row]]] = {
    ChatBody: ("/v1/chat/completions", {"model": "fake", "messages": HELLO, "seed": 5}, CHAT),
    CompletionBody: (
        "/v1/completions",
        {"model": "fake", "prompt": "hello", "seed": 5},
        COMPLETION,
    ),
    TokenizeBody: ("/tokenize", {}, TOKENIZE),
    DetokenizeBody: ("/detokenize", {}, DETOKENIZE),
}
FIELDS = [(body_type, name) for body_type, (_, _, rows) in BODIES.items() for name in rows]


def each(fields: list[tuple[type[BaseModel], str]]) -> pytest.MarkDecorator:
    names = [f"{body_type.__name__}-{name}" for body_type, name in fields]
    return pytest.mark.parametrize(("body_type", "name"), fields, ids=names)


@pytest.fixture(autouse=True)
def script(server: FakeServer) -> None:
    server.loop.say("quick fox jumps")
    server.loop.tokens_per_step = 4


def post(http: httpx.Client, path: str, fields: dict[str, Any]) -> httpx.Response:
    """Post what `json=` would refuse, too: infinities and half characters."""
    headers = {"content-type": "application/json"}
    return http.post(path, content=json.dumps(fields).encode(), headers=headers)


def ask(http: httpx.Client, body_type: type[BaseModel], name: str, value: object) -> httpx.Response:
    path, base, rows = BODIES[body_type]
    return post(http, path, {**base, **rows[name].beside, name: value})


def row_of(body_type: type[BaseModel], name: str) -> Row:
    return BODIES[body_type][2][name]


@pytest.mark.parametrize("body_type", BODIES, ids=lambda each: each.__name__)
def test_every_field_has_a_row(body_type: type[BaseModel]):
    assert set(BODIES[body_type][2]) == set(body_type.model_fields)


@each(FIELDS)
def test_a_usual_value_and_one_on_the_edge_are_served(
    http: httpx.Client, body_type: type[BaseModel], name: str
):
    row = row_of(body_type, name)
    for value in (*row.valid, *row.edge):
        answer = ask(http, body_type, name, value)
        assert answer.status_code == 200, (str(value)[:80], answer.text)
        assert '"error"' not in answer.text


@each(FIELDS)
def test_a_wrong_or_huge_value_is_refused_by_name_before_the_engine_hears_of_it(
    server: FakeServer, http: httpx.Client, body_type: type[BaseModel], name: str
):
    row = row_of(body_type, name)
    for value in (*row.wrong, *row.huge):
        answer = ask(http, body_type, name, value)
        assert answer.status_code in (400, 404), (str(value)[:80], answer.text[:200])
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert re.split(r"[.\[]", error["param"])[0] == name, str(value)[:80]
        assert len(error["message"]) < 1000
    assert not server.loop.submitted


@each(FIELDS)
def test_null_is_as_if_the_field_were_left_out(
    server: FakeServer, http: httpx.Client, body_type: type[BaseModel], name: str
):
    path, base, rows = BODIES[body_type]
    without = {key: value for key, value in {**base, **rows[name].beside}.items() if key != name}

    null = post(http, path, {**without, name: None})
    told = told_engine(server)
    absent = post(http, path, without)

    assert null.status_code == absent.status_code
    if body_type.model_fields[name].is_required():
        assert null.json()["error"]["param"] == absent.json()["error"]["param"] == name
        return
    assert masked(null) == masked(absent)
    assert told == told_engine(server)


def masked(answer: httpx.Response) -> str:
    """Return an answer without what differs between two of one request."""
    return re.sub(r'"(id|created|seed)":("[^"]*"|\d+)', "", answer.text)


def told_engine(server: FakeServer) -> frozenset[GenerateRequest]:
    """Return what the engine was asked since the last look, without ids and drawn seeds."""
    told = frozenset(replace(each, request_id="", seed=0) for each in server.loop.submitted)
    server.loop.submitted.clear()
    return told


@each([key for key in FIELDS if row_of(*key).acts])
def test_a_field_acts(
    server: FakeServer, http: httpx.Client, body_type: type[BaseModel], name: str
):
    path, base, rows = BODIES[body_type]
    row = rows[name]

    def seen(fields: dict[str, Any]) -> tuple[Any, ...]:
        answer = post(http, path, fields)
        seeds = frozenset(request.seed for request in server.loop.submitted)
        return answer.headers["content-type"], masked(answer), seeds, told_engine(server)

    plain = {**base, **row.beside}
    assert seen({**plain, name: row.valid[0]}) != seen(plain)
    assert seen(plain) == seen(plain)


@pytest.mark.parametrize(
    ("path", "by_default"), [("chat/completions", False), ("completions", True)]
)
def test_start_ids_are_added_to_a_text_and_to_a_chat_where_it_says_so(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: str, by_default: bool
):
    asked: list[bool] = []
    encode = TextTokenizer.encode

    def noting(tokenizer: TextTokenizer, text: str, *, add_special_tokens: bool = True):
        asked.append(add_special_tokens)
        return encode(tokenizer, text, add_special_tokens=add_special_tokens)

    monkeypatch.setattr(TextTokenizer, "encode", noting)
    fields = {"model": "fake", "messages": HELLO, "prompt": "hello"}
    for given in ({}, {"add_special_tokens": True}, {"add_special_tokens": False}):
        assert post(http, f"/v1/{path}", {**fields, **given}).status_code == 200

    assert asked == [by_default, True, False]

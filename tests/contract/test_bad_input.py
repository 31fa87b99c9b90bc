"""Whatever a client sends wrongly gets a 400 that names the field, and disturbs nothing else."""

import json
from typing import Any

import httpx
import pytest

from deployments.openai.refused import REFUSED
from deployments.openai.schemas import ChatBody, CompletionBody
from tests.rigs.http_server import FakeServer

CHAT = {"model": "fake", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
TEXT = {"model": "fake", "prompt": "hello", "max_tokens": 2}
VOCAB = 320
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def error_of(answer: httpx.Response, status: int = 400) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def chat(http: httpx.Client, **fields: Any) -> httpx.Response:
    return post(http, "/v1/chat/completions", {**CHAT, **fields})


def complete(http: httpx.Client, **fields: Any) -> httpx.Response:
    return post(http, "/v1/completions", {**TEXT, **fields})


def post(http: httpx.Client, path: str, body: object) -> httpx.Response:
    """Post what `json=` would refuse: infinities and half characters."""
    headers = {"content-type": "application/json"}
    return http.post(path, content=json.dumps(body).encode(), headers=headers)


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        (None, "messages"),
        ("hello", "messages"),
        ([1], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "function", "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "tool", "content": None}], "messages[0].content"),
        ([{"role": "robot", "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": "\ud800"}], "messages[0].content"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "\udc00"}]}],
            "messages[0].content",
        ),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0].function"),
        ([{"role": "assistant", "tool_calls": {}}], "messages[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": [CALL] * 129}], "messages[0].tool_calls"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}],
            "messages[0].tool_calls[0].function.arguments",
        ),
        ([{"role": "user", "content": "x", "tool_calls": [CALL]}], "messages[0].tool_calls"),
        ([{"role": "user", "content": "x"}] * 4097, "messages"),
    ],
    ids=lambda value: str(value)[:40],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_message_is_refused_before_any_byte_of_a_stream(
    http: httpx.Client, messages: object, param: str, stream: bool
):
    assert error_of(chat(http, messages=messages, stream=stream))["param"] == param


@pytest.mark.parametrize(
    "prompt",
    ["", [], [[]], [""], None, 5, {}, ["a", ""], ["a", 1], [[1], []], [[1], 2],
     ["a"] * 33, [1, "a"], [1.5], [True], [[True]],
     [-1], [[-1]], [VOCAB], [[VOCAB]], [10**30], "\ud800", ["\udfff"], [[["a"]]],
     [1, None], [None], [[None]], [[1, None]]],
    ids=str,
)  # fmt: skip
def test_a_wrong_prompt_is_refused(server: FakeServer, http: httpx.Client, prompt: object):
    assert error_of(complete(http, prompt=prompt))["param"] == "prompt"
    assert not server.loop.submitted


def test_a_paired_emoji_written_as_two_escapes_is_one_character(
    server: FakeServer, http: httpx.Client
):
    body = b'{"model": "fake", "prompt": "\\ud83d\\ude00", "max_tokens": 1}'
    headers = {"content-type": "application/json"}

    answer = http.post("/v1/completions", content=body, headers=headers)

    assert answer.status_code == 200
    assert server.loop.tokenizer.decode(list(server.loop.submitted[0].prompt_token_ids)) == "😀"


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"5", b"null", b'"x"', b"\xff\xfe", b"{'model': 1}", b"[" * 100_000,
     b'{"seed": ' + b"9" * 5000 + b"}"],
    ids=lambda raw: str(raw[:12]),
)  # fmt: skip
def test_what_is_not_a_json_object_is_invalid_json(http: httpx.Client, raw: bytes):
    for path in ("/v1/chat/completions", "/v1/completions"):
        answer = http.post(path, content=raw, headers={"content-type": "application/json"})
        assert error_of(answer)["code"] == "invalid_json"


def test_a_prompt_over_the_context_is_refused_with_the_numbers(
    server: FakeServer, http: httpx.Client
):
    limit = server.loop.engine.facts.max_model_len
    alone = error_of(complete(http, prompt=[7] * limit))
    together = error_of(complete(http, prompt=[7] * (limit - 3), max_tokens=4))
    whole_chat = error_of(chat(http, messages=[{"role": "user", "content": "zq" * limit}]))

    assert {each["code"] for each in (alone, together, whole_chat)} == {"context_length_exceeded"}
    assert (alone["param"], together["param"], whole_chat["param"]) == (
        "prompt",
        "max_tokens",
        "messages",
    )
    assert str(limit) in alone["message"]
    assert "max_tokens can be 3 at most" in together["message"]


def test_a_request_that_fills_the_context_exactly_is_served(server: FakeServer, http: httpx.Client):
    limit = server.loop.engine.facts.max_model_len
    answer = complete(http, prompt=[7] * (limit - 3), max_tokens=3)
    assert answer.json()["usage"]["total_tokens"] == limit


def test_two_different_budgets_are_refused(http: httpx.Client):
    assert error_of(chat(http, max_tokens=3, max_completion_tokens=4))["param"] == "max_tokens"
    assert chat(http, max_tokens=3, max_completion_tokens=3).status_code == 200


@pytest.mark.parametrize("field", REFUSED)
@pytest.mark.parametrize("value", ["auto or so", [{}], 7])
def test_what_would_change_the_answer_and_is_not_served_is_refused_by_name(
    http: httpx.Client, field: str, value: object
):
    for ask, body_type in ((chat, ChatBody), (complete, CompletionBody)):
        if field not in body_type.model_fields:
            error = error_of(ask(http, **{field: value}))
            assert (error["code"], error["param"]) == ("unsupported_parameter", field)


@pytest.mark.parametrize(
    ("asked", "most"),
    [
        (None, None),
        ({}, None),
        ({"mode": "auto"}, None),
        ({"mode": "off"}, 0),
        ({"mode": "off", "max_draft_len": 3}, 0),
        ({"max_draft_len": 0}, 0),
        ({"mode": "auto", "max_draft_len": 4}, 4),
    ],
)
def test_a_request_says_how_far_drafts_may_go(
    server: FakeServer, http: httpx.Client, asked: object, most: int | None
):
    assert chat(http, speculation=asked).status_code == 200
    assert complete(http, speculation=asked).status_code == 200
    assert [request.max_draft_length for request in server.loop.submitted[-2:]] == [most] * 2


@pytest.mark.parametrize(
    ("asked", "param", "words"),
    [
        ("off", "speculation", "'off'"),
        (False, "speculation", "False"),
        ({"mode": "fast"}, "speculation.mode", "'auto' or 'off'"),
        ({"max_draft_len": -1}, "speculation.max_draft_len", "-1"),
        ({"max_draft_len": 1.5}, "speculation.max_draft_len", "1.5"),
        ({"max_draft_length": 0}, "speculation", "no field 'max_draft_length'"),
    ],
)
def test_a_slip_in_what_drafts_may_do_is_refused(
    http: httpx.Client, asked: object, param: str, words: str
):
    for answer in (chat(http, speculation=asked), complete(http, speculation=asked)):
        error = error_of(answer)
        assert (error["code"], error["param"]) == ("invalid_parameter", param)
        assert words in error["message"]


@pytest.mark.parametrize("field", REFUSED)
def test_asking_for_nothing_in_a_refused_field_is_served(http: httpx.Client, field: str):
    for ask, body_type in ((chat, ChatBody), (complete, CompletionBody)):
        if field not in body_type.model_fields:
            for value in (None, False, [], {}, "", *REFUSED[field].asks_for_nothing):
                assert ask(http, **{field: value}).status_code == 200


def test_true_is_no_number_that_asks_for_nothing(http: httpx.Client):
    assert error_of(chat(http, length_penalty=True))["param"] == "length_penalty"
    assert error_of(chat(http, skip_special_tokens=1))["param"] == "skip_special_tokens"


@pytest.mark.parametrize(
    ("slip", "nearest"),
    [
        ("max_token", "max_tokens"),
        ("temprature", "temperature"),
        ("top_logprob", "top_logprobs"),
    ],
)
def test_a_misspelt_field_of_ours_is_refused_with_the_nearest(
    http: httpx.Client, slip: str, nearest: str
):
    error = error_of(chat(http, **{slip: 1}))
    assert error["param"] == slip
    assert repr(nearest) in error["message"]


def test_foreign_fields_are_served_and_named_in_a_header(http: httpx.Client):
    extra = {"store": True, "safety_identifier": "a", "bad\nname": 1}
    for stream in (False, True):
        answer = chat(http, **extra, stream=stream)
        assert answer.status_code == 200
        assert answer.headers["x-ignored-fields"] == "store, safety_identifier"
    answer = chat(http, stream=True, stream_options={"include_obfuscation": False})
    assert answer.headers["x-ignored-fields"] == "stream_options.include_obfuscation"
    assert "x-ignored-fields" not in chat(http).headers


def test_half_characters_outside_of_texts_cannot_break_the_answer(http: httpx.Client):
    assert error_of(chat(http, **{"max_token\ud800": 1}))["code"] == "invalid_parameter"
    assert error_of(chat(http, model="\ud800"), 404)["code"] == "model_not_found"
    assert error_of(chat(http, logit_bias={"\ud800": 1}))["param"] == "logit_bias"
    assert error_of(chat(http, messages=[{"role": "\ud800", "content": "x"}]))
    assert chat(http, **{"\ud800": "\ud800"}, user="\ud800").status_code == 200


def test_thousands_of_unknown_fields_are_refused_before_they_cost_anything(http: httpx.Client):
    error = error_of(chat(http, **{f"field_{index}": 1 for index in range(5000)}))
    assert "5000 unknown fields" in error["message"]


def test_foreign_message_fields_are_served(http: httpx.Client):
    message = {"role": "user", "content": "hi", "name": "ann", "cache_control": {"x": 1}}
    assert chat(http, messages=[message]).status_code == 200


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/chat/completions", {"top_logprobs": 2}, "top_logprobs"),
        ("/v1/chat/completions", {"logprobs": True, "top_logprobs": 10**6}, "top_logprobs"),
        ("/v1/chat/completions", {"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ("/v1/chat/completions", {"logprobs": 1}, "logprobs"),
        ("/v1/completions", {"logprobs": 21}, "logprobs"),
        ("/v1/completions", {"logprobs": -1}, "logprobs"),
        ("/v1/completions", {"logprobs": True}, "logprobs"),
        ("/v1/completions", {"logprobs": 1, "echo": True}, "echo"),
        (
            "/v1/completions",
            {"stream": True, "stream_options": {"continuous_usage_stats": True}},
            "stream_options.continuous_usage_stats",
        ),
        ("/v1/completions", {"best_of": 2}, "best_of"),
        ("/v1/completions", {"best_of": 2, "n": 3}, "best_of"),
        ("/v1/completions", {"best_of": 9, "n": 8}, "best_of"),
    ],
)
def test_fields_of_one_endpoint_are_checked_too(
    http: httpx.Client, path: str, fields: dict[str, Any], param: str
):
    body = {**(CHAT if "chat" in path else TEXT), **fields}
    assert error_of(post(http, path, body))["param"] == param


def test_a_body_over_the_limit_is_413_whether_or_not_it_says_its_length(http: httpx.Client):
    big = b'{"model": "fake", "prompt": "' + b"a" * (4 * 1024 * 1024) + b'"}'
    headers = {"content-type": "application/json"}
    declared = http.post("/v1/completions", content=big, headers=headers)
    chunked = http.post("/v1/completions", content=iter([big[:2_000_000], big]), headers=headers)

    assert error_of(declared, 413)["code"] == error_of(chunked, 413)["code"] == "request_too_large"


def test_a_long_text_prompt_inside_the_limit_is_a_clear_400(http: httpx.Client):
    error = error_of(complete(http, prompt="quick brown " * 20_000))
    assert error["code"] == "context_length_exceeded"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
def test_half_a_character_inside_the_arguments_of_a_call_is_refused(http: httpx.Client, path: str):
    """An escape in a text of JSON is read by nobody before the template gets it."""
    function = {"name": "f", "arguments": '{"city": "\\ud800"}'}
    calls = [{"id": "c", "type": "function", "function": function}]
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "user", "content": "hi"},
    ]
    answer = http.post(path, json={"model": "fake", "messages": messages})

    assert answer.status_code == 400
    assert "half a character" in answer.json()["error"]["message"]

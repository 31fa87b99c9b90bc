"""`/tokenize` and `/detokenize`: what the model's own tokenizer makes of texts, chats and ids."""

from typing import Any

import httpx
import pytest

from tests.rigs.http_server import FakeServer

TEXT = "the quick 世界 😀<|im_end|>"
HELLO = [{"role": "user", "content": "hello"}]


def ask(http: httpx.Client, path: str, **fields: Any) -> Any:
    answer = http.post(path, json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_text_becomes_the_tokenizers_ids_and_those_the_text(
    server: FakeServer, http: httpx.Client
):
    expected = server.loop.tokenizer.encode(TEXT).ids

    answer = ask(http, "/tokenize", model="fake", prompt=TEXT)

    limit = server.loop.engine.facts.max_model_len
    assert answer == {
        "count": len(expected),
        "max_model_len": limit,
        "tokens": expected,
        "token_strs": None,
    }
    assert ask(http, "/detokenize", tokens=answer["tokens"]) == {"prompt": TEXT}


def test_a_text_longer_than_the_context_is_counted_all_the_same(http: httpx.Client):
    answer = ask(http, "/tokenize", prompt="quick " * 20_000)
    assert answer["count"] == len(answer["tokens"]) > answer["max_model_len"]


def test_tokens_can_come_with_their_names(server: FakeServer, http: httpx.Client):
    answer = ask(http, "/tokenize", prompt=TEXT, return_token_strs=True)
    assert answer["token_strs"] == server.loop.tokenizer.encode(TEXT).tokens


@pytest.mark.parametrize("prompted", [True, False])
@pytest.mark.parametrize("tools", [None, [{"type": "function", "function": {"name": "f"}}]])
def test_a_chat_becomes_the_ids_that_its_completion_would_begin_with(
    server: FakeServer, http: httpx.Client, prompted: bool, tools: object
):
    chat = {"messages": HELLO, "tools": tools, "chat_template_kwargs": {"thinks": True}}
    tokens = ask(http, "/tokenize", **chat, add_generation_prompt=prompted)["tokens"]
    asked = {"model": "fake", **chat, "max_tokens": 1}
    assert http.post("/v1/chat/completions", json=asked).status_code == 200

    prompt = list(server.loop.submitted[-1].prompt_token_ids)
    assert (tokens == prompt) == prompted
    assert tokens == prompt[: len(tokens)]


def test_an_empty_text_has_no_ids_and_no_ids_are_an_empty_text(http: httpx.Client):
    assert ask(http, "/tokenize", prompt="")["tokens"] == []
    assert ask(http, "/detokenize", tokens=[]) == {"prompt": ""}


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": HELLO}, "prompt"),
        ("/tokenize", {"prompt": "a", "add_generation_prompt": False}, "add_generation_prompt"),
        ("/tokenize", {"prompt": "a", "chat_template_kwargs": {}}, "chat_template_kwargs"),
        ("/tokenize", {"prompt": "a", "tools": []}, "tools"),
        ("/tokenize", {"prompt": "a" * 1_048_577}, "prompt"),
        ("/tokenize", {"messages": [{**HELLO[0], "content": "a" * 1_048_577}]}, "messages"),
        ("/tokenize", {"prompt": "a", "continue_final_message": True}, "continue_final_message"),
        ("/tokenize", {"prompt": "a", "return_token_str": True}, "return_token_str"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [320]}, "tokens"),
        ("/detokenize", {"tokens": [[1]]}, "tokens[0]"),
        ("/detokenize", {"tokens": [1.0]}, "tokens[0]"),
        ("/detokenize", {"tokens": [1] * 262_145}, "tokens"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_served_is_refused_by_name(
    http: httpx.Client, path: str, fields: dict[str, Any], param: str
):
    answer = http.post(path, json=fields)

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_another_model_is_not_served_here(http: httpx.Client):
    for path, fields in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [1]})):
        answer = http.post(path, json={**fields, "model": "other"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")

"""What a chat template is given of the messages that a client sends."""

import json

import httpx
import pytest
from openai import OpenAI

from deployments.openai.errors import ErrorCode, RefusedError
from deployments.openai.messages import Message, template_messages
from deployments.openai.tokenizer import ChatTemplateError, TextTokenizer
from tests.rigs.byte_tokenizer import byte_level_tokenizer, tokenizer_files
from tests.rigs.http_server import FakeServer

ASK = {"role": "user", "content": "weather?"}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"city": "Köln"}'},
}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "rain"}]}


def prompt_of(server: FakeServer) -> str:
    token_ids = list(server.loop.submitted[-1].prompt_token_ids)
    return server.loop.tokenizer.decode(token_ids, skip_special_tokens=False)


def test_a_call_without_text_and_its_result_are_both_in_the_prompt(
    server: FakeServer, openai_client: OpenAI
):
    openai_client.chat.completions.create(
        model="fake", messages=[ASK, CALLED, RESULT, ASK], max_tokens=1
    )

    assert prompt_of(server) == (
        "<|im_start|>user\nweather?<|im_end|>\n<|im_start|>assistant\n"
        '<call>{"name": "look", "arguments": {"city": "Köln"}}</call><|im_end|>\n'
        "<|im_start|>tool\nrain<|im_end|>\n<|im_start|>user\nweather?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("arguments", ["", "not json", "[1]", "[" * 100_000])
def test_arguments_that_are_no_object_stay_as_the_model_wrote_them(arguments: str):
    call = {"function": {"name": "look", "arguments": arguments}}
    message = Message.model_validate({"role": "assistant", "tool_calls": [call]})

    (written,) = template_messages([message], with_template("{{ messages[0].tool_calls }}"))

    assert written["content"] == ""
    assert written["tool_calls"][0]["function"] == {"name": "look", "arguments": arguments}


def with_template(template: str) -> TextTokenizer:
    files = {**tokenizer_files(byte_level_tokenizer()), "tokenizer_config.json": b"{}"}
    return TextTokenizer({**files, "chat_template.jinja": template.encode()})


@pytest.mark.parametrize(
    ("message", "param"), [(CALLED, "messages[0].tool_calls"), (RESULT, "messages[0].role")]
)
def test_what_a_template_would_not_show_is_refused_by_name(message: dict, param: str):
    tokenizer = with_template("{% for each in messages %}{{ each.content }}{% endfor %}")

    with pytest.raises(RefusedError) as refused:
        template_messages([Message.model_validate(message)], tokenizer)

    assert refused.value.error.code is ErrorCode.UNSUPPORTED_PARAMETER
    assert refused.value.error.param == param


def test_names_of_speakers_and_calls_reach_the_template():
    given = [{**ASK, "name": "ann"}, RESULT]
    messages = [Message.model_validate(each) for each in given]

    written = template_messages(messages, with_template("{{ tool_calls }}"))

    assert written == [
        {"role": "user", "content": "weather?", "name": "ann"},
        {"role": "tool", "content": "rain", "tool_call_id": "call_1"},
    ]


def test_a_variable_that_the_template_reads_acts(server: FakeServer, openai_client: OpenAI):
    for thinks in (True, False):
        openai_client.chat.completions.create(
            model="fake",
            messages=[ASK],
            max_tokens=1,
            extra_body={"chat_template_kwargs": {"thinks": thinks}},
        )
        assert prompt_of(server).endswith("assistant\n<think>" if thinks else "assistant\n")


@pytest.mark.parametrize("name", ["enable_thinking", "messages", "add_generation_prompt", "\ud800"])
def test_a_variable_that_it_does_not_read_or_that_is_ours_is_refused(http: httpx.Client, name: str):
    fields = {"model": "fake", "messages": [ASK], "chat_template_kwargs": {name: 1}}

    answer = http.post(
        "/v1/chat/completions",
        content=json.dumps(fields),
        headers={"content-type": "application/json"},
    )

    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "chat_template_kwargs")
    assert "thinks" in error["message"]


@pytest.mark.parametrize(
    "template",
    ["{{ messages[0].content + 1 }}", "{% for each in messages[0].content | items %}{% endfor %}"],
)
def test_a_template_that_fails_on_what_it_is_given_refuses_the_messages(template: str):
    with pytest.raises(ChatTemplateError, match="refuses them"):
        with_template(template).render_chat([{"role": "user", "content": "x"}])

"""Requests that the unmodified `openai` client makes, taken where they would leave the machine."""

import contextlib
from typing import Any

import httpx
import openai

from benchmarks.fuzz.sending import FuzzRequest

_TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Say how the weather is.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
_TURN = [{"role": "user", "content": "Name three rivers."}]
_TOOL_TURNS = [
    *_TURN,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Basel"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
]
_CHATS: tuple[dict[str, Any], ...] = (
    {"messages": _TURN},
    {"messages": _TURN, "stream": True, "stream_options": {"include_usage": True}},
    {"messages": _TURN, "temperature": 0.7, "top_p": 0.9, "seed": 7, "stop": ["\n", "end"]},
    {"messages": _TURN, "n": 3, "logprobs": True, "top_logprobs": 4, "max_tokens": 8},
    {"messages": _TURN, "tools": [_TOOL], "tool_choice": "auto"},
    {"messages": _TOOL_TURNS, "tools": [_TOOL], "parallel_tool_calls": False},
    {"messages": _TURN, "response_format": {"type": "json_object"}, "max_tokens": 32},
    {
        "messages": _TURN,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "person", "strict": True, "schema": _SCHEMA},
        },
    },
    {
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Grüß Gott, 世界 🙂"}]},
        ],
        "max_completion_tokens": 12,
        "logit_bias": {"5": -50},
        "presence_penalty": 0.4,
        "frequency_penalty": 0.2,
        "user": "someone",
        "metadata": {"a": "b"},
        "service_tier": "auto",
    },
    {
        "messages": _TURN,
        "extra_body": {
            "top_k": 20,
            "min_p": 0.05,
            "repetition_penalty": 1.1,
            "min_tokens": 2,
            "ignore_eos": True,
            "stop_token_ids": [3, 4],
            "speculation": {"mode": "auto", "max_draft_len": 3},
            "metrics": True,
            "chat_template_kwargs": {"enable_thinking": False},
        },
        "max_tokens": 6,
    },
)
_COMPLETIONS: tuple[dict[str, Any], ...] = (
    {"prompt": "Once upon a time"},
    {"prompt": ["One", "Two"], "max_tokens": 4, "stream": True},
    {"prompt": [[5, 6, 7], [8, 9]], "max_tokens": 4, "n": 2},
    {"prompt": [5, 6, 7], "logprobs": 3, "echo": False, "max_tokens": 3, "best_of": 1},
    {"prompt": "A list:", "echo": True, "max_tokens": 5, "suffix": None, "stop": "."},
)


def recorded_requests(model: str) -> list[FuzzRequest]:
    """Return requests with the bodies and the headers of that client, for a model."""
    taken: list[FuzzRequest] = []

    def take(request: httpx.Request) -> httpx.Response:
        headers = {
            name: value
            for name, value in request.headers.items()
            if name not in ("host", "content-length", "connection")
        }
        body = request.read() or None
        taken.append(
            FuzzRequest(request.method, request.url.path, headers, body, "the openai client")
        )
        return httpx.Response(418)

    transport = httpx.Client(transport=httpx.MockTransport(take))
    client = openai.OpenAI(
        base_url="http://host/v1", api_key="any", max_retries=0, http_client=transport
    )
    for create, calls in (
        (client.chat.completions.create, _CHATS),
        (client.completions.create, _COMPLETIONS),
    ):
        for arguments in calls:
            with contextlib.suppress(openai.APIStatusError):
                create(model=model, **arguments)
    json_type = {"content-type": "application/json"}
    for path, body in (
        ("/tokenize", b'{"prompt": "Once upon a time", "return_token_strs": true}'),
        ("/tokenize", b'{"messages": [{"role": "user", "content": "Hi"}]}'),
        ("/detokenize", b'{"tokens": [5, 6, 7]}'),
    ):
        taken.append(FuzzRequest("POST", path, json_type, body, "a vLLM client"))
    return taken

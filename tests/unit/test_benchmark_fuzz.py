"""What the fuzz benchmark calls a fault, and that it sends what it says."""

import base64
import json
import random
import shlex
from collections.abc import Callable, Iterator
from itertools import islice

import httpx
import pytest

from benchmarks.fuzz import sending
from benchmarks.fuzz.generated import generated, merged
from benchmarks.fuzz.mutations import mutated
from benchmarks.fuzz.recorded import recorded_requests
from benchmarks.fuzz.sending import Fault, FuzzRequest, Outcome, outcome_of
from deployments.openai import errors

CHAT = FuzzRequest("POST", "/v1/chat/completions", {"x-a": "b'c"}, b'{"a": "\xff"}', "a test")
REFUSAL = errors.invalid_parameter("n", "n must be 1")
FAILURE = errors.internal_error("id")


def outcome(answer: Callable[[httpx.Request], httpx.Response], method: str = "POST") -> Outcome:
    request = FuzzRequest(method, CHAT.target, CHAT.headers, CHAT.body)
    with httpx.Client(base_url="http://a", transport=httpx.MockTransport(answer)) as client:
        return outcome_of(client, request)


def unread(answer: httpx.Response) -> httpx.Response:
    """Return an answer as it comes from a socket: nobody has read it yet."""
    kind = {"content-type": answer.headers.get("content-type", "")}
    return httpx.Response(answer.status_code, headers=kind, content=iter([answer.content]))


def with_error(status: int, **changes: object) -> httpx.Response:
    return httpx.Response(status, json={"error": REFUSAL.as_body()["error"] | changes})


def stream(*frames: object, ends: bool = True) -> httpx.Response:
    lines = [f"data: {json.dumps(frame)}\n\n" for frame in frames]
    content = "".join([*lines, "data: [DONE]\n\n" if ends else ""])
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=content)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (httpx.Response(200, json={}), None),
        (with_error(400), None),
        (with_error(404), Fault.MALFORMED),
        (with_error(400, code="odd"), Fault.MALFORMED),
        (with_error(400, message=""), Fault.MALFORMED),
        (with_error(400, param=5), Fault.MALFORMED),
        (with_error(400, more=1), Fault.MALFORMED),
        (httpx.Response(400, json=[]), Fault.MALFORMED),
        (httpx.Response(404, text="Not Found"), Fault.MALFORMED),
        (httpx.Response(400, headers={"content-type": "application/json"}), Fault.MALFORMED),
        (httpx.Response(500, json=FAILURE.as_body()), Fault.BREAKS),
        (stream({"choices": []}), None),
        (stream({"choices": []}, ends=False), Fault.MALFORMED),
        (stream(REFUSAL.as_body()), None),
        (stream({"error": "odd"}), Fault.MALFORMED),
        (stream(FAILURE.as_body()), Fault.BREAKS),
    ],
)
def test_an_answer_is_at_fault_or_not(answer: httpx.Response, fault: Fault | None):
    found = outcome(lambda _request: unread(answer))
    assert (found.status, found.fault) == (answer.status_code, fault), found


def test_the_answer_to_head_has_no_body_to_be_malformed():
    assert outcome(lambda _request: unread(httpx.Response(405)), "HEAD").fault is None


def test_no_answer_is_a_hang_and_so_is_one_that_never_ends(monkeypatch: pytest.MonkeyPatch):
    def gone(_request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("nothing")

    def endless() -> Iterator[bytes]:
        while True:
            yield b": ping\n\n"

    monkeypatch.setattr(sending, "_BOUND_S", 0.02)
    assert outcome(gone).fault is Fault.HANGS
    assert outcome(lambda _request: httpx.Response(200, content=endless())).fault is Fault.HANGS


def test_the_command_that_sends_it_again_holds_every_byte():
    echo, decode, curl = CHAT.as_curl("http://a:1").split(" | ")
    assert base64.b64decode(shlex.split(echo)[1]) == CHAT.body
    assert decode == "base64 -d"
    assert shlex.split(curl)[-5:] == [
        "-H",
        "x-a: b'c",
        "http://a:1/v1/chat/completions",
        "--data-binary",
        "@-",
    ]


def test_recorded_requests_are_the_clients_own():
    recorded = recorded_requests("m")
    chats = [each for each in recorded if each.target == "/v1/chat/completions"]
    assert all(json.loads(each.body or b"")["model"] == "m" for each in chats)
    assert {"stream", "tools", "response_format", "logprobs", "top_k"} <= {
        field for each in chats for field in json.loads(each.body or b"")
    }
    assert all("x-stainless-lang" in each.headers for each in chats)


def test_equal_seeds_mutate_alike_and_others_do_not():
    recorded = recorded_requests("m")

    def some(seed: int) -> list[FuzzRequest]:
        return [*islice(mutated(recorded, random.Random(seed)), 200)]

    assert some(1) == some(1) != some(2)
    assert len({(each.method, each.target, each.body) for each in some(1)}) > 150
    for each in some(1):
        httpx.Request(each.method, f"http://a{each.target}", content=each.body)


def test_each_operation_of_a_document_is_generated_for_valid_and_not():
    reads = {"application/json": {"schema": {"type": "object", "required": ["model"]}}}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "t", "version": "1"},
        "paths": {
            "/livez": {"get": {"responses": {"200": {"description": "d"}}}},
            "/a": {
                "post": {
                    "requestBody": {"required": True, "content": reads},
                    "responses": {"200": {"description": "d"}},
                }
            },
        },
    }
    made = generated(document, 40, "served", 0)
    sent = [each for each in made if each.target.startswith("/a")]
    assert len(made) >= 30 > len(made) - len(sent)
    assert any(each.target.startswith("/livez") for each in made)
    assert any(b'"model": "served"' in (each.body or b"") for each in sent)
    assert any(not (each.body or b"").startswith(b"{") for each in sent)


def test_sources_are_taken_in_turn_until_all_are_empty():
    one, two = (FuzzRequest("GET", f"/{name}") for name in "ab")
    turns = merged(iter([one, one, one]), iter([two]))
    assert [each.target for each in turns] == ["/a", "/b", "/a", "/a"]

"""The bytes of a stream: headers, frames, pings, failures, and clients that leave."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from deployments import replica as replica_module
from deployments.openai import stream as stream_module
from deployments.room import Room
from tests.rigs.http_server import FakeServer, eventually

BODY = {"model": "fake", "messages": [{"role": "user", "content": "hello"}], "stream": True}


def test_frames_are_data_lines_ended_by_done_and_nothing_may_buffer_them(
    server: FakeServer, http: httpx.Client
):
    server.loop.say("one two")

    answer = http.post("/v1/chat/completions", json=BODY)

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    *frames, done, end = answer.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    payloads = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    assert all("finish_reason" in payload["choices"][0] for payload in payloads)


@pytest.mark.usefixtures("one_step_a_message")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("logprobs", [False, True])
def test_counts_in_every_frame_grow_to_those_of_the_last(
    server: FakeServer, http: httpx.Client, path: str, logprobs: bool
):
    server.loop.say("one two")
    options = {"include_usage": True, "continuous_usage_stats": True}
    is_chat = "chat" in path
    fields = {**BODY, "prompt": "hello", "stream_options": options}
    if logprobs:
        fields["logprobs"] = True if is_chat else 1

    *frames, _, _ = http.post(path, json=fields).text.split("\n\n")

    usages = [json.loads(frame.removeprefix("data: "))["usage"] for frame in frames]
    usages = usages[1:] if is_chat else usages
    counts = [usage["completion_tokens"] for usage in usages]
    num_tokens = len(server.loop.tokenizer.encode("one two").ids)
    assert counts == [*range(1, num_tokens + 1), *[num_tokens] * (len(counts) - num_tokens)]
    assert usages[-1] == usages[-2]


def test_the_role_comes_with_the_first_token_and_not_before(server: FakeServer, http: httpx.Client):
    """Clients take the first frame for the first token, whatever is in it."""
    server.loop.say("one two")
    server.loop.may_step.clear()
    release = threading.Timer(0.2, server.loop.may_step.set)

    with http.stream("POST", "/v1/chat/completions", json=BODY) as answer:
        release.start()
        first = next(answer.iter_raw()).decode()

    assert '"role":"assistant"' in first
    assert '"content":"o' in first


def test_a_refused_stream_is_a_plain_error_before_any_event(http: httpx.Client):
    answer = http.post("/v1/chat/completions", json={**BODY, "n": 0})

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "n"


def test_a_full_queue_is_a_429_for_streams_too(server: FakeServer, http: httpx.Client):
    from dflash.errors import OverloadedError

    server.loop.overload = OverloadedError("the queue is full", 2.3)

    answer = http.post("/v1/chat/completions", json=BODY)

    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
    assert answer.json()["error"]["code"] == "queue_full"


def test_slots_and_queue_hold_what_they_may_and_not_one_more(
    server: FakeServer, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(replica_module, "room_of_this_replica", lambda: Room(2, 1))
    assert eventually(lambda: http.get("/readyz").json()["engines"][0]["room"] is not None)
    server.loop.may_step.clear()

    def ask() -> httpx.Response:
        return http.post("/v1/chat/completions", json={**BODY, "stream": False})

    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask) for _ in range(8)]
        assert eventually(lambda: sum(future.done() for future in asked) == 5)
        server.loop.may_step.set()
        answers = [future.result() for future in asked]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) == 5
    assert {answer.json()["error"]["code"] for answer in refused} == {"queue_full"}
    # Those that were served left their places.
    assert [ask().status_code for _ in range(4)] == [200] * 4


def test_a_failure_after_the_first_byte_is_one_error_frame_then_done(
    server: FakeServer, http: httpx.Client
):
    server.loop.failure = "a page was lost"

    frames = http.post("/v1/chat/completions", json=BODY).text.split("\n\n")

    assert json.loads(frames[-3].removeprefix("data: "))["error"]["code"] == "engine_failure"
    assert frames[-2:] == ["data: [DONE]", ""]
    assert '"finish_reason":"' not in "".join(frames)


def test_an_abort_by_the_server_is_an_error_and_no_fake_stop(
    server: FakeServer, http: httpx.Client
):
    server.loop.may_step.clear()
    with http.stream("POST", "/v1/chat/completions", json=BODY) as answer:
        assert eventually(lambda: bool(server.loop.submitted))
        server.loop.abort(server.loop.submitted[0].request_id)
        text = answer.read().decode()

    assert '"code":"request_aborted"' in text
    assert '"finish_reason":"' not in text


def test_a_silent_stream_is_pinged_with_comments(
    server: FakeServer, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stream_module, "PING_INTERVAL_S", 0.02)
    server.loop.may_step.clear()
    lines: list[str] = []
    with http.stream("POST", "/v1/chat/completions", json={**BODY, "max_tokens": 2}) as answer:
        for line in answer.iter_lines():
            lines.append(line)
            if lines.count(": ping") == 3:
                server.loop.may_step.set()

    assert lines.count(": ping") >= 3
    assert [line for line in lines if line][-1] == "data: [DONE]"


def test_a_client_that_leaves_is_aborted_exactly_once(server: FakeServer, http: httpx.Client):
    server.loop.step_s = 0.005
    with http.stream("POST", "/v1/chat/completions", json={**BODY, "max_tokens": 400}) as answer:
        next(answer.iter_lines())

    request_id = server.loop.submitted[0].request_id
    assert eventually(lambda: server.loop.aborted[request_id] == 1)
    assert eventually(lambda: not server.replica._streams)
    assert server.loop.snapshot().num_running == 0
    assert server.loop.aborted == {request_id: 1}


def test_a_finished_stream_is_not_aborted(server: FakeServer, http: httpx.Client):
    http.post("/v1/chat/completions", json={**BODY, "max_tokens": 3})

    assert eventually(lambda: not server.replica._streams)
    assert not server.loop.aborted


def test_a_client_chosen_request_id_may_repeat(server: FakeServer, http: httpx.Client):
    server.loop.may_step.clear()
    ids = {"x-request-id": "same"}
    fields = {**BODY, "max_tokens": 2}
    with (
        http.stream("POST", "/v1/chat/completions", json=fields, headers=ids) as first,
        http.stream("POST", "/v1/chat/completions", json=fields, headers=ids) as second,
    ):
        server.loop.may_step.set()
        assert first.read().endswith(b"[DONE]\n\n")
        assert second.read().endswith(b"[DONE]\n\n")


def test_non_ascii_text_is_not_escaped_and_line_breaks_are(server: FakeServer, http: httpx.Client):
    server.loop.say('世界\r\n\n"😀')

    raw = http.post("/v1/chat/completions", json=BODY).content

    # A reader that is quick gets them in two events.
    assert all(character.encode() in raw for character in "世界")
    events = [event for event in raw.split(b"\n\n") if event]
    assert all(event.startswith(b"data: ") and b"\n" not in event for event in events)

"""A request ends at its deadline, says so, and leaves nothing behind; its id is in every answer."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator

import httpx
import openai
import pytest

from deployments.gateway import Gateway
from deployments.guard.guard import Guard
from deployments.guard.settings import GuardSettings, RequestBounds
from deployments.http import create_app
from deployments.watch import EngineWatch
from tests.rigs.http_server import MODEL, FakeServer, LocalClient, eventually, serving

PATH = "/v1/chat/completions"
BODY = {"model": "fake", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 400}
TIMEOUT = "x-request-timeout-ms"


@pytest.fixture(scope="module")
def hasty_server() -> Iterator[FakeServer]:
    """Gives a request half a second, and twenty where it asks, of 4096 bytes."""
    bounds = RequestBounds(max_body_bytes=4096, default_timeout_s=0.5, max_timeout_s=20)
    with serving(guard=Guard(GuardSettings(bounds=bounds))) as server:
        yield server


@pytest.fixture
def hasty(hasty_server: FakeServer) -> Iterator[httpx.Client]:
    hasty_server.loop.may_step.clear()
    hasty_server.loop.submitted.clear()
    hasty_server.loop.aborted.clear()
    with httpx.Client(base_url=hasty_server.base_url, timeout=20) as client:
        yield client


def is_left_clean(server: FakeServer) -> bool:
    """Return whether all that was begun was aborted, once, and no stream is left."""
    return (
        server.loop.aborted == {request.request_id: 1 for request in server.loop.submitted}
        and not server.replica._streams
        and server.loop.snapshot().num_running == 0
    )


@pytest.mark.parametrize("n", [1, 3])
def test_over_the_servers_own_limit_a_whole_answer_is_a_408_that_names_it(
    hasty_server: FakeServer, hasty: httpx.Client, n: int
):
    answer = hasty.post(PATH, json={**BODY, "n": n})

    assert answer.status_code == 408
    error = answer.json()["error"]
    assert error["code"] == "request_timeout"
    assert "0.5 s (args.requests.default_timeout_s)" in error["message"]
    # Trying again would only run into it again.
    assert answer.headers["x-should-retry"] == "false"
    assert eventually(lambda: is_left_clean(hasty_server))


def test_a_client_asks_for_more_or_less_in_a_header(
    hasty_server: FakeServer, hasty: httpx.Client, server: FakeServer, http: httpx.Client
):
    server.loop.may_step.clear()
    answer = http.post(PATH, json=BODY, headers={TIMEOUT: "400"})
    assert answer.status_code == 408
    assert f"0.4 s ({TIMEOUT})" in answer.json()["error"]["message"]
    assert eventually(lambda: is_left_clean(server))

    hasty_server.loop.may_step.set()
    hasty_server.loop.step_s = 0.2
    answer = hasty.post(PATH, json={**BODY, "max_tokens": 4}, headers={TIMEOUT: "20000"})
    hasty_server.loop.step_s = 0.0
    assert answer.status_code == 200


@pytest.mark.parametrize("value", ["0", "-5", "1.5", "20001", "soon", "", "9" * 4000, "0x10"])
def test_a_limit_that_cannot_be_is_refused_by_name(
    hasty_server: FakeServer, hasty: httpx.Client, value: str
):
    answer = hasty.post(PATH, json=BODY, headers={TIMEOUT: value})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, TIMEOUT)
    assert "from 1 to 20000" in error["message"]
    assert not hasty_server.loop.submitted


@pytest.mark.parametrize("n", [1, 3])
def test_a_stream_ends_with_an_error_frame_and_done(
    hasty_server: FakeServer, hasty: httpx.Client, n: int
):
    answer = hasty.post(PATH, json={**BODY, "n": n, "stream": True})

    assert answer.status_code == 200
    *_, error, done, end = answer.text.split("\n\n")
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "request_timeout"
    assert (done, end) == ("data: [DONE]", "")
    assert '"finish_reason":"' not in answer.text
    assert eventually(lambda: is_left_clean(hasty_server))


def test_the_openai_client_raises_in_mid_stream(server: FakeServer, openai_client: openai.OpenAI):
    server.loop.step_s = 0.005
    headers = {TIMEOUT: "1000"}
    with pytest.raises(openai.APIError, match=TIMEOUT):
        for _ in openai_client.chat.completions.create(**BODY, stream=True, extra_headers=headers):
            pass


def test_an_upload_that_takes_too_long_is_over_at_the_deadline_too(hasty: httpx.Client):
    def slowly() -> Iterator[bytes]:
        yield b'{"model": '
        eventually(lambda: False, 1.0)

    headers = {"content-type": "application/json"}
    answer = hasty.post(PATH, content=slowly(), headers=headers)
    assert answer.json()["error"]["code"] == "request_timeout"


def test_the_limit_of_a_body_is_the_settings(hasty: httpx.Client):
    headers = {"content-type": "application/json"}
    for content in (b"a" * 4097, iter([b"a" * 4000, b"a" * 97])):
        answer = hasty.post(PATH, content=content, headers=headers)
        assert answer.status_code == 413
        assert "4096 bytes" in answer.json()["error"]["message"]
    for content in (b"a" * 4096, iter([b"a" * 4000, b"a" * 96])):
        answer = hasty.post(PATH, content=content, headers=headers)
        assert answer.json()["error"]["code"] == "invalid_json"


def test_parts_of_a_body_count_together_and_the_rest_is_not_received(hasty_server: FakeServer):
    client = LocalClient(hasty_server.replica)
    guard = Guard(GuardSettings(bounds=RequestBounds(max_body_bytes=4096)))
    app = create_app(Gateway(client, EngineWatch(client), MODEL), guard=guard)
    received: list[int] = []

    async def parts() -> AsyncIterator[bytes]:
        for index in range(10):
            received.append(index)
            yield b"a" * 1500

    async def test() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            headers = {"content-type": "application/json"}
            return await http.post(PATH, content=parts(), headers=headers)

    assert asyncio.run(test()).status_code == 413
    assert received == [0, 1, 2]


def nested(depth: int) -> str:
    """Return a body of so many levels, with more brackets in its texts."""
    text = json.dumps({**BODY, "max_tokens": 1, "user": "[{" * 200, "metadata": "HERE"})
    return text.replace('"HERE"', "[" * (depth - 1) + "]" * (depth - 1))


def test_a_body_may_be_nested_a_hundred_levels_deep_and_no_more(http: httpx.Client):
    headers = {"content-type": "application/json"}
    for depth, status in ((1, 200), (100, 200), (101, 400), (900, 400)):
        answer = http.post(PATH, content=nested(depth) if depth > 1 else nested(2), headers=headers)
        assert answer.status_code == status, depth
    assert "nested over 100 levels" in answer.json()["error"]["message"]


SANE = ["a", "1-2_3", "|trace.id:7/x=", "x" * 128]
INSANE = ["", "x" * 129, "with space", "ü".encode(), b"tab\there"]


@pytest.mark.parametrize("given", SANE)
def test_a_sane_request_id_is_in_every_answer(server: FakeServer, http: httpx.Client, given: str):
    def broken(_request):
        raise RuntimeError("a fault of ours")

    headers = {"x-request-id": given}
    fields = {**BODY, "max_tokens": 2}
    answers = [
        http.post(PATH, json=fields, headers=headers),
        http.post(PATH, json={**fields, "stream": True}, headers=headers),
        http.post(PATH, json={**fields, "temperature": -1}, headers=headers),
        http.get("/nope", headers=headers),
        http.get("/livez", headers=headers),
    ]
    server.loop.script = broken
    answers.append(http.post(PATH, json=fields, headers=headers))
    assert [each.status_code for each in answers] == [200, 200, 400, 404, 200, 500]
    assert {tuple(each.headers.get_list("x-request-id")) for each in answers} == {(given,)}
    assert given in answers[-1].json()["error"]["message"]


@pytest.mark.parametrize("given", INSANE)
def test_another_request_id_is_replaced(http: httpx.Client, given: str | bytes):
    answer = http.get("/livez", headers={"x-request-id": given})
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])


def test_without_one_every_request_has_an_id_of_its_own(http: httpx.Client):
    assert len({http.get("/livez").headers["x-request-id"] for _ in range(5)}) == 5

"""A client that leaves, during its upload or later, is no fault and leaves nothing behind."""

import asyncio
import json
import logging

import pytest

from deployments.gateway import Gateway
from deployments.http import create_app
from deployments.ingress import running
from deployments.watch import EngineWatch
from dflash.config import EngineConfig
from tests.rigs.http_server import MODEL, LocalClient, open_replica, until

SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "POST",
    "path": "/v1/completions",
    "raw_path": b"/v1/completions",
    "query_string": b"",
    "root_path": "",
    "headers": [(b"content-type", b"application/json")],
}


def test_leaving_during_the_upload_ends_quietly(caplog: pytest.LogCaptureFixture):
    sent: list[dict[str, object]] = []

    async def test() -> None:
        replica, _ = await open_replica(EngineConfig())
        client = LocalClient(replica)
        app = create_app(Gateway(client, EngineWatch(client), MODEL))
        messages = [
            {"type": "http.request", "body": b'{"model": ', "more_body": True},
            {"type": "http.disconnect"},
        ]

        async def receive() -> dict[str, object]:
            return messages.pop(0)

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        await app(dict(SCOPE), receive, send)
        replica.__del__()

    with caplog.at_level(logging.INFO):
        asyncio.run(test())

    assert sent[0]["status"] == 499
    assert not [line for line in caplog.records if line.levelno >= logging.WARNING]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("moment", [0, 1, 2, 5])
def test_leaving_at_any_moment_of_a_stream_ends_each_choice_once(n: int, moment: int):
    """The client is gone after so many messages; the first one is the status."""
    fields = {"model": MODEL, "prompt": "x", "stream": True, "max_tokens": 400, "n": n}

    async def test() -> None:
        replica, loop = await open_replica(EngineConfig())
        loop.step_s = 0.002
        client = LocalClient(replica)
        watch = EngineWatch(client)
        gateway = Gateway(client, watch, MODEL)
        upload: list[dict[str, object]] = [
            {"type": "http.request", "body": json.dumps(fields).encode(), "more_body": False}
        ]
        has_left, num_sent = asyncio.Event(), 0

        async def receive() -> dict[str, object]:
            if upload:
                return upload.pop()
            await has_left.wait()
            return {"type": "http.disconnect"}

        async def send(_message: dict[str, object]) -> None:
            nonlocal num_sent
            if num_sent == moment:
                has_left.set()
                # Whoever writes to a closed connection waits for nothing.
                await asyncio.sleep(0)
            num_sent += 1

        async with running(watch.run()):
            await until(lambda: watch.why_not_ready() is None)
            await create_app(gateway)(dict(SCOPE), receive, send)
            await until(lambda: not len(replica._streams))
            assert loop.aborted == {each.request_id: 1 for each in loop.submitted}
            assert len(loop.submitted) == n
            assert gateway._places._num_taken == 0
        replica.__del__()

    asyncio.run(asyncio.wait_for(test(), 30))

"""A client that leaves during its upload is no fault of the server."""

import asyncio
import logging

import pytest

from deployments.gateway import Gateway
from deployments.http import create_app
from deployments.watch import EngineWatch
from dflash.config import EngineConfig
from tests.rigs.http_server import MODEL, LocalClient, open_replica


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

        scope = {
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
        await app(scope, receive, send)
        replica.__del__()

    with caplog.at_level(logging.INFO):
        asyncio.run(test())

    assert sent[0]["status"] == 499
    assert not [line for line in caplog.records if line.levelno >= logging.WARNING]

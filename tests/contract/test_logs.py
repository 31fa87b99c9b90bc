"""Lines of the engine reach Serve's log, once, and nothing changes outside Serve."""

import logging
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
from ray import cloudpickle

from deployments.ingress import Ingress
from deployments.logs import join_serve_log
from tests.rigs.http_server import FakeServer, eventually

NAMES = ("ray.serve", "deployments", "dflash")


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def loggers(monkeypatch):
    for name in NAMES:
        for attribute, value in (("handlers", []), ("propagate", True)):
            monkeypatch.setattr(logging.getLogger(name), attribute, value)
        monkeypatch.setattr(logging.getLogger(name), "level", logging.INFO)


@pytest.mark.usefixtures("loggers")
def test_the_engines_lines_are_written_once_by_serves_handlers():
    lines = Lines()
    logging.getLogger("ray.serve").addHandler(lines)

    join_serve_log()
    logging.getLogger("dflash.load").info("memory plan")
    logging.getLogger("deployments.replica").info("engine ready")

    assert lines.lines == ["memory plan", "engine ready"]


@pytest.mark.usefixtures("loggers")
def test_the_ingress_writes_there_too_and_can_still_be_sent_to_a_process():
    lines = Lines()
    logging.getLogger("ray.serve").addHandler(lines)

    assert cloudpickle.loads(cloudpickle.dumps(Ingress)) is Ingress
    own_class = Ingress.__mro__[1]
    own_class.__init__(object.__new__(own_class), Mock(), "fake")
    logging.getLogger("deployments.http").error("it failed")

    warning, failure = lines.lines
    assert "whoever reaches the port may ask for everything" in warning
    assert failure == "it failed"


@pytest.mark.usefixtures("loggers")
def test_outside_serve_nothing_changes():
    join_serve_log()

    assert logging.getLogger("dflash").propagate
    assert logging.getLogger("dflash").handlers == []


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def records(server: FakeServer) -> Iterator[list[logging.LogRecord]]:
    """Every record of our loggers and the root's while a server runs."""
    handler = Records()
    loggers = [logging.getLogger(name) for name in ("deployments", "dflash", "")]
    for logger in loggers:
        logger.addHandler(handler)
    yield handler.records
    for logger in loggers:
        logger.removeHandler(handler)


def lines_of(records: list[logging.LogRecord], count: int) -> list[dict[str, Any]]:
    """Return the lines of so many requests; each is written after its answer."""

    def found() -> list[dict[str, Any]]:
        unique = {id(record): record for record in records}
        return [r.__dict__["request"] for r in unique.values() if "request" in r.__dict__]

    assert eventually(lambda: len(found()) >= count)
    return found()


CHAT = {"model": "fake", "messages": [{"role": "user", "content": "promptword"}], "max_tokens": 9}


def test_each_request_leaves_one_line_in_fields(
    server: FakeServer, http: httpx.Client, records: list[logging.LogRecord]
):
    server.loop.tokens_per_step = 3
    trace_id = "0af7651916cd43dd8448eb211c80319c"

    http.post(
        "/v1/chat/completions",
        json=CHAT,
        headers={"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"},
    )
    http.get("/livez")

    (line,) = lines_of(records, 1)
    times = {name: line.pop(name) for name in ("queue_ms", "first_token_ms", "duration_ms")}
    assert 0 <= times["queue_ms"] <= times["first_token_ms"] <= times["duration_ms"]
    assert len(line.pop("request_id")) == 32
    assert line.pop("prompt_tokens") > 0
    assert len(line.pop("replicas")) == 1
    assert line == {
        "trace_id": trace_id,
        "route": "/v1/chat/completions",
        "status": 200,
        "finish_reasons": ["length"],
        "stream": False,
        "cached_tokens": 0,
        "completion_tokens": 9,
        "steps": {"scripted": 2},
        "draft_tokens": 6,
        "accepted_tokens": 4,
    }


def test_a_refused_request_leaves_a_line_with_its_code(
    http: httpx.Client, records: list[logging.LogRecord]
):
    http.post("/v1/chat/completions", json={**CHAT, "temperature": -1})

    (line,) = lines_of(records, 1)
    assert (line["status"], line["code"]) == (400, "invalid_parameter")


@pytest.mark.parametrize("failure", [None, "the device is gone"])
@pytest.mark.parametrize("stream", [False, True])
def test_no_word_of_a_prompt_or_an_answer_is_logged(
    server: FakeServer,
    http: httpx.Client,
    records: list[logging.LogRecord],
    failure: str | None,
    stream: bool,
):
    server.loop.say("answerword")
    server.loop.failure = failure
    words = {"stop": ["stopword"], "user": "userword", "otherword": 1}

    http.post("/v1/chat/completions", json={**CHAT, **words, "stream": stream})
    http.post("/v1/completions", json={"model": "fake", "prompt": "promptword", "n": -1})
    http.post("/v1/chat/completions", content=b'{"promptword')
    http.post("/v1/chat/completions", json={**CHAT, "messages": [{"role": "promptword"}]})

    assert len(lines_of(records, 4)) == 4
    written = "".join(f"{record.getMessage()} {record.__dict__}" for record in records)
    for word in ("promptword", "answerword", "stopword", "userword", "otherword"):
        assert word not in written

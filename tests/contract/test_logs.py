"""Lines of the engine reach Serve's log, once, and nothing changes outside Serve."""

import logging
from unittest.mock import Mock

import pytest
from ray import cloudpickle

from deployments.ingress import Ingress
from deployments.logs import join_serve_log

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

"""A collector in a process of its own, so that what it does costs the server nothing."""

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from tests.rigs.otlp_receiver import receiving

VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"


@contextmanager
def collector_apart() -> Iterator[str]:
    """Yield the endpoint of a collector that runs until the block ends."""
    ours, theirs = multiprocessing.Pipe()
    # What is forked would have this process's threads' locks.
    process = multiprocessing.get_context("spawn").Process(target=_collect, args=(theirs,))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


@contextmanager
def variable(name: str, value: str | None) -> Iterator[None]:
    """Set a variable of this process's environment, or take it out, within the block."""
    before = os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


def _collect(parent: Connection) -> None:
    with receiving() as received:
        parent.send(received.endpoint)
        parent.recv()

"""What `/readyz` says beside whether it is: drain, pins, and every replica in full."""

from dataclasses import asdict, replace
from typing import Any

from deployments.operators.replica_row import pin_body
from deployments.watch import EngineWatch
from deployments.wire import EngineStatus


def ready_details(watch: EngineWatch) -> dict[str, Any]:
    """Return them."""
    orders = watch.board.orders
    return {
        "is_draining": orders.drain.is_on,
        "pins": [pin_body(pin) for pin in orders.live_pins(watch.board.now_s)],
        "engines": [_engine_body(status) for status in watch.statuses],
    }


def _engine_body(status: EngineStatus) -> dict[str, Any]:
    """Return a replica's status; what operators and metrics see beside it has other paths."""
    body = asdict(replace(status, report=None, steps=None))
    del body["report"], body["steps"], body["decisions"]
    return body

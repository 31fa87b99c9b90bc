"""The routes under `/policy`: what the replicas do and did, and pins."""

import asyncio
import zlib
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from deployments.guard.auth import key_of
from deployments.openai import errors
from deployments.openai.body import json_object, read_body
from deployments.openai.errors import RefusedError
from deployments.operators.ages import iso_time
from deployments.operators.board import FleetBoard, Heard
from deployments.operators.decision_body import (
    MOST_CURSOR_CHARACTERS,
    cursor_of,
    decision_body,
    known_from,
)
from deployments.operators.orders import MAX_PINS, StandingPin
from deployments.operators.pin_request import pin_from
from deployments.operators.policy_body import policy_body
from deployments.operators.query import one_of, query_of, whole_number
from deployments.operators.replica_row import pin_body
from deployments.operators.report import DeskReport
from deployments.operators.words import explained
from deployments.watch import EngineWatch
from policy.reasons import Reason

_DECISIONS = 100
_MOST_DECISIONS = 1000
_SIGNALS = 500
_MOST_SIGNALS = 1000
# A pin's answer says who obeys it; it waits for that, but not for a replica that is silent.
_OBEYED_WITHIN_S = 2.0
# No decision is as large: what inflates to more is no file of ours.
_MOST_SIGNALS_BYTES = 64 * 1024 * 1024


def add_policy_routes(app: FastAPI, watch: EngineWatch, model_name: str) -> None:
    """Let an app answer under `/policy`.

    Args:
        app: The app.
        watch: Knows the replicas.
        model_name: What is served.
    """
    routes = _PolicyRoutes(watch, model_name)
    app.add_api_route("/policy", routes.show, methods=["GET"])
    app.add_api_route("/policy/decisions", routes.decisions, methods=["GET"])
    app.add_api_route("/policy/explain", routes.explain, methods=["GET"])
    app.add_api_route("/policy/signals", routes.signals, methods=["GET"])
    app.add_api_route("/policy/pins", routes.pin, methods=["POST"])
    app.add_api_route("/policy/pins/{pin_id}", routes.lift, methods=["DELETE"])


class _PolicyRoutes:
    def __init__(self, watch: EngineWatch, model_name: str) -> None:
        self._watch, self._model_name = watch, model_name

    @property
    def _board(self) -> FleetBoard:
        return self._watch.board

    async def show(self, request: Request) -> Response:
        """Answer `GET /policy`."""
        query_of(request, ())
        return JSONResponse(policy_body(self._watch, self._model_name))

    async def decisions(self, request: Request) -> Response:
        """Answer `GET /policy/decisions`."""
        query = query_of(request, ("since", "replica", "reason", "limit"))
        limit = whole_number("limit", query.get("limit"), _DECISIONS, _MOST_DECISIONS)
        ring = self._board.decisions
        known, replica, reason = ring.known(), query.get("replica"), query.get("reason")
        if replica is not None:
            one_of("replica", replica, {*known, *(each.status.replica for each in self._heard())})
        if reason is not None:
            reason = Reason(one_of("reason", reason, [str(each) for each in Reason]))
        told = ring.told(_since(query.get("since", "")), replica, reason)
        body = {
            "decisions": [decision_body(each) for each in told[:limit]],
            "is_cut": len(told) > limit,
            "cursor": cursor_of(known),
        }
        return JSONResponse(body)

    async def explain(self, request: Request) -> Response:
        """Answer `GET /policy/explain`."""
        query = query_of(request, ("replica",))
        heard, desk = self._desk_of(query.get("replica"))
        if desk.newest is None:
            sentences, at_s = ["Nothing was decided yet."], self._board.now_s
        else:
            sentences = explained(desk.newest)
            at_s = desk.newest.at_s + desk.clock_offset_s
        body = {
            "replica": heard.status.replica,
            "at": iso_time(at_s),
            "plan": desk.home,
            "reason": str(Reason.STARTING if desk.newest is None else desk.newest.reason),
            "sentences": sentences,
        }
        return JSONResponse(body)

    async def signals(self, request: Request) -> Response:
        """Answer `GET /policy/signals`: a file for `dflashctl replay`."""
        query = query_of(request, ("replica", "format", "limit"))
        one_of("format", query.get("format", "jsonl"), ("jsonl",))
        most = whole_number("limit", query.get("limit"), _SIGNALS, _MOST_SIGNALS)
        heard, _ = self._desk_of(query.get("replica"))
        name = heard.status.replica
        packed = await self._watch.signals(name, most)
        if packed is None:
            raise RefusedError(errors.engine_failure(f"replica {name} does not answer; retry"))
        text = await asyncio.to_thread(zlib.decompressobj().decompress, packed, _MOST_SIGNALS_BYTES)
        headers = {"Content-Disposition": f'attachment; filename="signals-{name}.jsonl"'}
        return Response(text, media_type="application/jsonl", headers=headers)

    async def pin(self, request: Request) -> Response:
        """Answer `POST /policy/pins`."""
        query_of(request, ())
        fields = json_object(await read_body(request))
        board = self._board
        if len(board.orders.pins) >= MAX_PINS:
            raise RefusedError(
                errors.invalid_parameter(
                    "plan", f"{MAX_PINS} pins are remembered already; wait until some expire"
                )
            )
        key = key_of(request.scope)
        key_name = None if key is None else key.name
        pin = pin_from(fields, key_name, self._heard(), board.now_s)
        await board.order(board.orders.with_pin(pin), _OBEYED_WITHIN_S)
        return JSONResponse({"pin": pin_body(pin), **self._obeyed(pin)}, status_code=201)

    async def lift(self, request: Request, pin_id: str) -> Response:
        """Answer `DELETE /policy/pins/{id}`."""
        query_of(request, ())
        board = self._board
        live = {pin.pin_id: pin for pin in board.orders.live_pins(board.now_s)}
        if pin_id not in live:
            raise RefusedError(errors.pin_not_found(pin_id, sorted(live)))
        await board.order(board.orders.without_pin(pin_id), _OBEYED_WITHIN_S)
        return JSONResponse({"lifted": pin_body(live[pin_id])})

    def _heard(self) -> tuple[Heard, ...]:
        return self._board.heard()

    def _obeyed(self, pin: StandingPin) -> dict[str, Any]:
        """Return which replicas have taken a pin, and which have yet to hear of it."""
        obeying: list[str] = []
        waiting: list[str] = []
        for heard in self._heard():
            report = heard.status.report
            desk = report and report.desk
            if "*" not in pin.replicas and heard.status.replica not in pin.replicas:
                continue
            has_it = desk is not None and desk.pin is not None and desk.pin.pin_id == pin.pin_id
            (obeying if has_it else waiting).append(heard.status.replica)
        return {"obeyed_by": obeying, "waits_for": waiting}

    def _desk_of(self, replica: str | None) -> tuple[Heard, DeskReport]:
        """Return what the policy of a replica said.

        Raises:
            RefusedError: There is no such replica, several and none was named, or no policy.
        """
        heard = {each.status.replica: each for each in self._heard()}
        if replica is None and len(heard) > 1:
            listed = ", ".join(sorted(heard))
            message = f"replica is missing, and there are several; give one of {listed}"
            raise RefusedError(errors.invalid_parameter("replica", message))
        if not heard:
            raise RefusedError(self._watch.refusal() or errors.server_loading("starting", 0))
        found = heard[one_of("replica", replica or next(iter(heard)), heard)]
        report = found.status.report
        if report is None or report.desk is None:
            message = (
                f"replica {found.status.replica} runs a fixed plan, and no policy decides there; "
                "set engine.speculation.draft_length to auto"
            )
            raise RefusedError(errors.invalid_parameter("replica", message))
        return found, report.desk


def _since(cursor: str) -> dict[str, int]:
    try:
        if len(cursor) > MOST_CURSOR_CHARACTERS:
            raise ValueError(f"it has {len(cursor)} characters")
        return dict(known_from(cursor))
    except ValueError as error:
        message = f"since is no cursor ({error}); give the `cursor` of an answer"
        raise RefusedError(errors.invalid_parameter("since", message)) from error

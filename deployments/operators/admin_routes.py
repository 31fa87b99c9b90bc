"""The routes under `/admin`: where the memory is, and taking no new work."""

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from deployments.guard.auth import key_of
from deployments.operators.ages import iso_time
from deployments.operators.orders import DrainWord, Orders
from deployments.operators.query import one_of, query_of
from deployments.operators.replica_row import memory_body
from deployments.watch import EngineWatch

_TOLD_WITHIN_S = 2.0


def add_admin_routes(app: FastAPI, watch: EngineWatch) -> None:
    """Let an app answer under `/admin`."""
    routes = _AdminRoutes(watch)
    app.add_api_route("/admin/memory", routes.memory, methods=["GET"])
    app.add_api_route("/admin/drain", routes.show_drain, methods=["GET"])
    app.add_api_route("/admin/drain", routes.drain, methods=["POST"])
    app.add_api_route("/admin/drain", routes.undrain, methods=["DELETE"])


class _AdminRoutes:
    def __init__(self, watch: EngineWatch) -> None:
        self._watch = watch

    async def memory(self, request: Request) -> Response:
        """Answer `GET /admin/memory`."""
        query = query_of(request, ("replica",))
        heard = self._watch.board.heard()
        if "replica" in query:
            name = one_of("replica", query["replica"], {each.status.replica for each in heard})
            heard = tuple(each for each in heard if each.status.replica == name)
        rows: list[dict[str, Any]] = []
        for each in heard:
            report = each.status.report
            known = report and report.memory and memory_body(report.memory, report.desk)
            head = {"replica": each.status.replica, "age_s": round(each.age_s, 1)}
            rows.append({**head, "memory": known})
        return JSONResponse({"replicas": rows})

    async def show_drain(self, request: Request) -> Response:
        """Answer `GET /admin/drain`."""
        query_of(request, ())
        return JSONResponse(self._drain_body())

    async def drain(self, request: Request) -> Response:
        """Answer `POST /admin/drain`: refuse new work, here and on every other ingress."""
        return await self._say(request, is_on=True)

    async def undrain(self, request: Request) -> Response:
        """Answer `DELETE /admin/drain`: take new work again."""
        return await self._say(request, is_on=False)

    async def _say(self, request: Request, *, is_on: bool) -> Response:
        query_of(request, ())
        board = self._watch.board
        if board.orders.drain.is_on != is_on:
            key = key_of(request.scope)
            word = DrainWord(board.now_s, is_on, key.name if key is not None else "")
            await board.order(Orders(board.orders.pins, word), _TOLD_WITHIN_S)
        return JSONResponse(self._drain_body())

    def _drain_body(self) -> dict[str, Any]:
        watch = self._watch
        word = watch.board.orders.drain
        return {
            "is_draining": word.is_on,
            "is_drained": watch.is_drained,
            "num_live": watch.num_live,
            "since": iso_time(word.said_at_s) if word.is_on else None,
            "author": word.author or None,
        }

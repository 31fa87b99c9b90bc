"""Around the whole app: every request has a journal, and leaves a record."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.openai import errors
from deployments.request_journal import RequestJournal
from deployments.telemetry.ingress import IngressTelemetry
from deployments.telemetry.tracing import CARRIER

UNKNOWN_ROUTE = "unknown"
"""Stands for all paths that are no route: they are made up by clients, and endless."""


class TelemetryFront:
    """ASGI middleware that sees each request from its first byte to its last."""

    def __init__(self, app: ASGIApp, telemetry: IngressTelemetry) -> None:
        """Wrap an app.

        Args:
            app: What answers.
            telemetry: Told of each request.
        """
        self._app = app
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or whatever else the server sends."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        journal = RequestJournal()
        journal.attach(scope)
        carrier = Headers(scope=scope).get(CARRIER, "")
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        span = self._telemetry.begin(path, carrier, journal)
        status = 0

        async def noting_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting_send)
        except Exception:
            # What the app does not answer itself becomes a 500 around us, named for its client.
            status = status or 500
            journal.fail(errors.internal_error("unnamed"))
            raise
        finally:
            self._telemetry.end(journal.record(_route_of(scope), status), span)


def _route_of(scope: Scope) -> str:
    """Return the path of the route that answered, as it was declared."""
    return getattr(scope.get("route"), "path", UNKNOWN_ROUTE)

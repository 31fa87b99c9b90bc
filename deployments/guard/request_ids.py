"""A request's id: the client's where it is sane, else one of ours."""

import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-request-id"
# Visible ASCII: it goes into headers, log lines and traces as it is.
_SANE = re.compile(r"[\x21-\x7e]{1,128}")
_ID = "dflash.request_id"
_ECHO = "dflash.request_id_headers"


class RequestIds:
    """Gives every request its id, and every answer the header that says it."""

    def __init__(self, app: ASGIApp, *, is_echoed_by_server: bool = False) -> None:
        """Wrap an app.

        Args:
            app: The app.
            is_echoed_by_server: Whether what serves this app adds the header to every answer, as
                Ray Serve does; one more would make two of it.
        """
        self._app = app
        self._is_echoed_by_server = is_echoed_by_server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        request_id = given if _SANE.fullmatch(given) else uuid.uuid4().hex
        scope[_ID] = request_id
        if self._is_echoed_by_server:
            await self._app(scope, receive, send)
            return
        scope[_ECHO] = {HEADER: request_id}

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)


def request_id_of(scope: Scope) -> str:
    """Return the id of a request that came through `RequestIds`."""
    return scope[_ID]


def id_headers(scope: Scope) -> dict[str, str]:
    """Return the id's header for an answer that does not pass `RequestIds` on its way out."""
    return scope.get(_ECHO, {})

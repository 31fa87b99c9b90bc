"""How long a request may take: what its client asks, within what the server allows."""

import asyncio
import logging
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.error_response import error_response, note_failure
from deployments.guard.settings import RequestBounds
from deployments.openai import errors
from deployments.openai.errors import ApiError
from deployments.openai.stream import DONE, frame

HEADER = "x-request-timeout-ms"
# Some clients try again after a 408 by themselves, and would run into the same limit.
_NO_RETRY = {"x-should-retry": "false"}
# A client that does not even read the last frame is left.
_LAST_FRAME_S = 5.0

logger = logging.getLogger(__name__)


class Deadlines:
    """Ends a request at its deadline: with a status, or once it streams with an error frame.

    What runs is cancelled, as when its client leaves: its pages are free within a step.
    """

    def __init__(self, app: ASGIApp, bounds: RequestBounds) -> None:
        self._app = app
        self._bounds = bounds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request within its time."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = limit_of(Headers(scope=scope).get(HEADER), self._bounds)
        if isinstance(limit, ApiError):
            await error_response(scope, limit)(scope, receive, send)
            return
        progress = _Progress(send)
        clock = asyncio.timeout(limit.seconds)
        try:
            async with clock:
                await self._app(scope, receive, progress.send)
        except TimeoutError:
            if not clock.expired():
                raise
            await progress.end(scope, receive, errors.request_timeout(str(limit)))


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """How long a request may take, and who says so."""

    seconds: float
    source: str

    def __str__(self) -> str:
        return f"{self.seconds:g} s ({self.source})"


def limit_of(header: str | None, bounds: RequestBounds) -> TimeLimit | ApiError:
    """Return a request's limit, or why its header cannot be one."""
    if header is None:
        return TimeLimit(bounds.default_timeout_s, "args.requests.default_timeout_s")
    most_ms = int(bounds.max_timeout_s * 1000)
    given_ms = int(header[:20]) if header.isdecimal() else 0
    if not 1 <= given_ms <= most_ms:
        return errors.invalid_parameter(
            HEADER, f"{HEADER} must be whole milliseconds from 1 to {most_ms}, got {header[:40]!a}"
        )
    return TimeLimit(given_ms / 1000, HEADER)


class _Progress:
    """How far an answer has gone out."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_begun = self._is_over = self._is_event_stream = False

    async def send(self, message: Message) -> None:
        """Send a part of the answer; one that is cut off while it waits has not gone out."""
        await self._send(message)
        if message["type"] == "http.response.start":
            self._is_begun = True
            kind = Headers(raw=message["headers"]).get("content-type", "")
            self._is_event_stream = kind.startswith("text/event-stream")
        elif not message.get("more_body", False):
            self._is_over = True

    async def end(self, scope: Scope, receive: Receive, error: ApiError) -> None:
        """Say that the time is over, in the way that is still possible."""
        if not self._is_begun:
            await error_response(scope, error, _NO_RETRY)(scope, receive, self._send)
        elif not self._is_over:
            note_failure(scope, error)
            frames = frame(error.as_body()) + DONE if self._is_event_stream else ""
            body = {"type": "http.response.body", "body": frames.encode(), "more_body": False}
            try:
                await asyncio.wait_for(self._send(body), _LAST_FRAME_S)
            except TimeoutError:
                logger.info("a client that did not read its stream missed the frame of its end")

"""No body over the limit is read, whether or not it says its length."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.error_response import error_response
from deployments.openai import errors
from deployments.openai.errors import RefusedError


class BodyLimit:
    """Ends a request whose body is over the limit as soon as that is known."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Raises:
            RefusedError: Out of `receive`, to the route that reads the body: it is over the limit.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        # Twenty digits are enough to tell.
        if declared.isdecimal() and int(declared[:20]) > self._max_bytes:
            refusal = errors.request_too_large(self._max_bytes)
            await error_response(scope, refusal)(scope, receive, send)
            return
        num_bytes = 0

        async def receive_within_limit() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes > self._max_bytes:
                raise RefusedError(errors.request_too_large(self._max_bytes))
            return message

        await self._app(scope, receive_within_limit, send)

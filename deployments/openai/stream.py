"""Server-sent events: frames, pings, and the one way an answer becomes a response."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Send

from deployments.openai import errors
from deployments.openai.errors import ApiError, RefusedError
from deployments.openai.generation import Answer, Piece, Usage, new_request_id
from deployments.request_journal import RequestJournal
from deployments.wire import Step

PING_INTERVAL_S = 10.0

DONE = "data: [DONE]\n\n"
_PING = b": ping\n\n"
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

# One encoder for all frames: building one costs more than encoding a frame.
encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

logger = logging.getLogger(__name__)


class Dialect(Protocol):
    """How one endpoint writes an answer. Frames are whole: ``data: ...`` and an empty line."""

    def opening(self) -> str:
        """Return the frames before the first token."""
        ...

    def delta(self, piece: Piece) -> str:
        """Return the frame of a piece that has text and is not the last."""
        ...

    def closing(self, piece: Piece, usage: Usage) -> str:
        """Return the frames of the last piece, up to ``[DONE]``."""
        ...

    def whole(self, pieces: list[Piece], usage: Usage) -> dict[str, Any]:
        """Return the body of an answer that is not streamed."""
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """Everything needed to answer one request that the engine has been given.

    Attributes:
        steps: The engine's messages, not yet begun.
        answer: The choice they grow.
        dialect: How it is written.
        headers: Of the response, besides the usual ones.
        journal: Told of each message and of the end.
    """

    steps: AsyncGenerator[Step, None]
    answer: Answer
    dialect: Dialect
    headers: Mapping[str, str]
    journal: RequestJournal

    def push(self, step: Step) -> Piece:
        """Return what a step adds to the answer, and take it down."""
        self.journal.note(step)
        piece = self.answer.push(step)
        if piece.finish_reason is not None:
            self.journal.finish(piece.finish_reason, self.answer.usage.completion_tokens)
        return piece


async def respond(reply: Reply, *, stream: bool) -> Response:
    """Wait until the engine takes the request, then answer it.

    The engine's first message says that the request was taken, before any token: a refusal
    still becomes a status, and a stream can be opened (and pinged) during a long prefill.

    Raises:
        RefusedError: The engine refused, or failed before an answer that is not streamed.
    """
    first = await anext(reply.steps, None)
    if first is None or first.error is not None:
        await reply.steps.aclose()
        raise RefusedError(_failure_of(first))
    reply.journal.note(first)
    if stream:
        return EventStreamResponse(_frames(reply), headers={**_HEADERS, **reply.headers})
    return JSONResponse(await _collect(reply), headers=dict(reply.headers))


async def _collect(reply: Reply) -> dict[str, Any]:
    pieces: list[Piece] = []
    async with aclosing(reply.steps) as steps:
        async for step in steps:
            if step.error is not None:
                raise RefusedError(step.error)
            pieces.append(reply.push(step))
            if pieces[-1].finish_reason is not None:
                return reply.dialect.whole(pieces, reply.answer.usage)
    raise RefusedError(_failure_of(None))


async def _frames(reply: Reply) -> AsyncIterator[str]:
    try:
        async with aclosing(reply.steps) as steps:
            if opening := reply.dialect.opening():
                yield opening
            async for step in steps:
                if step.error is not None:
                    yield _failed(reply, step.error)
                    return
                piece = reply.push(step)
                if piece.finish_reason is not None:
                    yield reply.dialect.closing(piece, reply.answer.usage)
                    return
                if piece.text:
                    yield reply.dialect.delta(piece)
        yield _failed(reply, _failure_of(None))
    except Exception:
        fault_id = new_request_id()
        logger.exception("stream failed, reported to its client as %s", fault_id)
        yield _failed(reply, errors.internal_error(fault_id))


def _failed(reply: Reply, error: ApiError) -> str:
    """Return what ends a stream that went wrong after its first byte."""
    reply.journal.fail(error)
    return frame(error.as_body()) + DONE


def _failure_of(step: Step | None) -> ApiError:
    if step is not None and step.error is not None:
        return step.error
    return errors.engine_failure("the engine ended the request without a finish reason; retry it")


def frame(payload: Mapping[str, Any]) -> str:
    """Return one event."""
    return f"data: {encode_json(payload)}\n\n"


class EventStreamResponse(StreamingResponse):
    """A stream of frames with a comment line wherever it was silent for long.

    Proxies cut silent connections, and a long prompt is silent. The pings come from a clock of
    their own beside the frames, so a token costs nothing for them.
    """

    media_type = "text/event-stream"

    async def stream_response(self, send: Send) -> None:
        """Send the frames, and pings between them."""
        loop = asyncio.get_running_loop()
        last_sent_s = loop.time()

        async def timed_send(message: Any) -> None:
            nonlocal last_sent_s
            last_sent_s = loop.time()
            if message.get("more_body") is False:
                pings.cancel()
            await send(message)

        async def ping() -> None:
            while True:
                await asyncio.sleep(last_sent_s + PING_INTERVAL_S - loop.time())
                if loop.time() - last_sent_s >= PING_INTERVAL_S:
                    await timed_send(
                        {"type": "http.response.body", "body": _PING, "more_body": True}
                    )

        pings = asyncio.create_task(ping())
        try:
            async with aclosing(self.body_iterator):  # pyright: ignore[reportArgumentType]
                await super().stream_response(timed_send)
        finally:
            pings.cancel()

"""Server-sent events: frames, pings, and the one way an answer becomes a response."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Send

from deployments.openai import errors
from deployments.openai.choices import Choice, ChoicePieces, total_usage
from deployments.openai.errors import ApiError, RefusedError
from deployments.openai.generation import Piece, Usage, new_request_id
from deployments.openai.metrics_block import metrics_body, with_metrics
from deployments.request_journal import RequestJournal

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

    def delta(self, index: int, piece: Piece, usage: Usage | None = None) -> str:
        """Return the frame of a choice's piece that has text and is not its last.

        Args:
            index: Of the choice.
            piece: What it gained.
            usage: The counts so far, where each frame is to carry them.
        """
        ...

    def ending(self, index: int, piece: Piece, usage: Usage | None = None) -> str:
        """Return the frames of a choice's last piece."""
        ...

    def closing(self, usage: Usage, metrics: Mapping[str, Any] | None = None) -> str:
        """Return what follows when all choices have ended, up to ``[DONE]``."""
        ...

    def whole(
        self,
        choices: Sequence[Sequence[Piece]],
        usage: Usage,
        metrics: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the body of an answer that is not streamed, from each choice's pieces."""
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """Everything needed to answer one request.

    Attributes:
        choices: Its choices, in the order of their indices.
        n: How many of them answer one prompt.
        pieces: What they gain, not yet begun.
        dialect: How it is written.
        headers: Of the response, besides the usual ones.
        journal: Told of an error that ends a stream.
        counts_in_each: Whether each frame of a stream carries the counts so far.
        has_metrics: Whether the answer says how long it took and how it was decoded.
    """

    choices: tuple[Choice, ...]
    n: int
    pieces: ChoicePieces
    dialect: Dialect
    headers: Mapping[str, str]
    journal: RequestJournal
    counts_in_each: bool = False
    has_metrics: bool = False

    @property
    def usage(self) -> Usage:
        """The counts so far."""
        return total_usage(self.choices, self.n)

    @property
    def metrics(self) -> dict[str, Any] | None:
        """What the answer says of itself; None where nobody asked."""
        return metrics_body(self.journal.record()) if self.has_metrics else None


async def respond(reply: Reply, *, stream: bool) -> Response:
    """Wait until the engine takes every choice, then answer.

    The first message of a choice says that the engine took it, before any token: a refusal
    still becomes a status, and a stream can be opened (and pinged) during a long prefill.

    Raises:
        RefusedError: The engine refused, or failed before an answer that is not streamed.
    """
    early = await _until_taken(reply)
    pieces = _joined(early, reply.pieces)
    if stream:
        return EventStreamResponse(_frames(reply, pieces), headers={**_HEADERS, **reply.headers})
    return JSONResponse(await _collect(reply, pieces), headers=dict(reply.headers))


async def _until_taken(reply: Reply) -> list[tuple[int, Piece]]:
    """Read on until every choice is taken; return what some gained before the last was."""
    waiting = set(range(len(reply.choices)))
    early: list[tuple[int, Piece]] = []
    while waiting:
        index, piece = await anext(reply.pieces)
        if index in waiting:
            waiting.remove(index)
        else:
            early.append((index, piece))
    return early


async def _joined(early: list[tuple[int, Piece]], pieces: ChoicePieces) -> ChoicePieces:
    async with aclosing(pieces):
        for each in early:
            yield each
        async for each in pieces:
            yield each


async def _collect(reply: Reply, pieces: ChoicePieces) -> dict[str, Any]:
    grown: list[list[Piece]] = [[] for _ in reply.choices]
    async with aclosing(pieces):
        async for index, piece in pieces:
            grown[index].append(piece)
    return reply.dialect.whole(grown, reply.usage, reply.metrics)


async def _frames(reply: Reply, pieces: ChoicePieces) -> AsyncIterator[str]:
    dialect, num_open = reply.dialect, len(reply.choices)
    # With the first token: clients take the first frame for it, even one that only has the role.
    opening = dialect.opening()
    try:
        async with aclosing(pieces):
            async for index, piece in pieces:
                counts = reply.usage if reply.counts_in_each else None
                if piece.finish_reason is not None:
                    num_open -= 1
                    closing = "" if num_open else dialect.closing(reply.usage, reply.metrics)
                    yield opening + dialect.ending(index, piece, counts) + closing
                elif piece.text or piece.calls:
                    yield opening + dialect.delta(index, piece, counts)
                else:
                    continue
                opening = ""
    except RefusedError as error:
        yield _failed(reply, error.error)
    except Exception:
        fault_id = new_request_id()
        logger.exception("stream failed, reported to its client as %s", fault_id)
        yield _failed(reply, errors.internal_error(fault_id))


def _failed(reply: Reply, error: ApiError) -> str:
    """Return what ends a stream that went wrong after its first byte."""
    reply.journal.fail(error)
    return frame(error.as_body()) + DONE


def frame(payload: Mapping[str, Any]) -> str:
    """Return one event."""
    return f"data: {encode_json(payload)}\n\n"


def last_frames(
    head: Mapping[str, Any],
    seed: int,
    usage: Usage,
    metrics: Mapping[str, Any] | None,
    *,
    include_usage: bool,
) -> str:
    """Return what ends a stream: counts and metrics where they were asked for, and ``[DONE]``.

    Args:
        head: What every frame of the answer has.
        seed: The request's.
        usage: The counts of all choices.
        metrics: What the answer says of itself; None where nobody asked.
        include_usage: Whether the counts were asked for.
    """
    if not include_usage and metrics is None:
        return DONE
    counts: dict[str, Any] = {"choices": [], "usage": usage.as_body(), "seed": seed}
    return frame({**head, **counts, **with_metrics(metrics)}) + DONE


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

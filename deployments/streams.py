"""The replica's open streams: from the engine thread's messages to one waiting reader each."""

import asyncio
from collections.abc import Iterable

from deployments.openai import errors
from deployments.openai.errors import ApiError
from deployments.wire import Step
from dflash.errors import OUT_OF_MEMORY
from dflash.request import FinishReason, TokenOutput


class StepInbox:
    """One request's undelivered messages. Used on the event loop only."""

    def __init__(self, now_s: float) -> None:
        self.renewed_at_s = now_s
        self._opened_at_s = now_s
        self._has_begun = False
        self._outputs: list[TokenOutput] = []
        self._has_some = asyncio.Event()

    def put(self, output: TokenOutput) -> None:
        """Add a message and wake the reader."""
        self._outputs.append(output)
        self._has_some.set()

    async def take(self) -> Step:
        """Return all that has come as one step; a slow reader gets fewer, larger ones."""
        await self._has_some.wait()
        self._has_some.clear()
        outputs, self._outputs = self._outputs, []
        return _step_from_outputs(outputs, self._queue_time_s(outputs[-1]))

    def _queue_time_s(self, output: TokenOutput) -> float | None:
        """Return how long the request waited, the first time that is known."""
        if self._has_begun or output.started_at_s is None:
            return None
        self._has_begun = True
        return max(0.0, output.started_at_s - self._opened_at_s)


class OpenStreams:
    """The inboxes of one replica by request id, and the leases that keep them open."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._inboxes: dict[str, StepInbox] = {}

    def __len__(self) -> int:
        return len(self._inboxes)

    def open(self, request_id: str, now_s: float) -> StepInbox:
        """Return a new inbox, leased from now, a moment of `time.monotonic`."""
        inbox = self._inboxes[request_id] = StepInbox(now_s)
        return inbox

    def close(self, request_id: str) -> None:
        """Forget a stream; messages that still come for it are dropped."""
        self._inboxes.pop(request_id, None)

    def deliver(self, outputs: Iterable[TokenOutput]) -> None:
        """Hand one step's messages to their streams."""
        for output in outputs:
            inbox = self._inboxes.get(output.request_id)
            if inbox is not None:
                inbox.put(output)

    def renew(self, request_ids: Iterable[str], now_s: float) -> None:
        """Prolong the leases of requests that a client still reads."""
        for request_id in request_ids:
            inbox = self._inboxes.get(request_id)
            if inbox is not None:
                inbox.renewed_at_s = now_s

    def expired(self, now_s: float) -> tuple[str, ...]:
        """Return the requests that nobody has asked after for a whole lease."""
        return tuple(
            request_id
            for request_id, inbox in self._inboxes.items()
            if now_s - inbox.renewed_at_s > self._lease_s
        )


def _step_from_outputs(outputs: list[TokenOutput], queue_time_s: float | None) -> Step:
    last = outputs[-1]
    token_ids, logprobs = last.token_ids, last.logprobs
    if len(outputs) > 1:
        token_ids = tuple(token_id for output in outputs for token_id in output.token_ids)
        each = [entry for output in outputs for entry in output.logprobs or ()]
        logprobs = tuple(each) or None
    reason, error = last.finish_reason, None
    if reason is FinishReason.ABORT:
        reason, error = None, errors.request_aborted()
    elif reason is FinishReason.ERROR:
        reason, error = None, _error_of(last.error or "the engine gave no reason", last.error_field)
    num_cached = max(output.num_cached_tokens for output in outputs)
    return Step(
        token_ids,
        logprobs,
        None if reason is None else reason.value,
        num_cached,
        error,
        tuple(output.decoded for output in outputs if output.decoded is not None),
        queue_time_s,
    )


def _error_of(detail: str, field: str | None) -> ApiError:
    if field is not None:
        return errors.invalid_parameter(field, detail)
    return errors.out_of_memory() if detail == OUT_OF_MEMORY else errors.engine_failure(detail)

"""The ingress's end of the handle: streams steps, resumes them elsewhere, keeps in touch."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol, cast

from ray.exceptions import RayActorError, RayError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

from deployments.openai import errors
from deployments.openai.errors import ApiError
from deployments.operators.report import Briefing
from deployments.wire import EngineStatus, FilePart, ModelCard, Step
from dflash.request import GenerateRequest

# A request that outlives this many replicas is more likely to be what kills them.
_MAX_RESUMES = 3
RETRY_AFTER_S = 1.0
QUEUE_FULL = "all slots and the queue are taken; retry later"
# How long Serve may take to place what the ingress has let in, and how often it is asked.
_PLACING_S = 2.0
_PLACING_PAUSE_S = 0.02
# Of one replica to a check-in; under the time that `EngineWatch` gives all of them.
_ANSWER_TIMEOUT_S = 2.0

logger = logging.getLogger(__name__)


class EngineClient(Protocol):
    """What the HTTP surface needs of an engine."""

    @property
    def num_live(self) -> int:
        """Requests that wait or run."""
        ...

    def generate(self, request: GenerateRequest, carrier: str = "") -> AsyncGenerator[Step, None]:
        """Yield an empty step once the engine took the request, then its steps.

        Where another replica has to continue it, an empty step says so again. Whatever goes wrong
        is the error of a last step. Closing the generator ends the request.

        Args:
            request: The request.
            carrier: Names the span that it belongs to; nothing where nobody traces it.
        """
        ...

    def describe(self) -> AsyncGenerator[ModelCard | FilePart, None]:
        """Yield the model's card, then its tokenizer files in parts."""
        ...

    async def check_in(self, briefing: Briefing) -> tuple[EngineStatus, ...]:
        """Keep this client's requests alive everywhere; return how each replica is.

        A replica that hears nothing of a request for long takes its client for dead.

        Args:
            briefing: What to tell every replica.
        """
        ...

    async def signals(self, replica: str, most: int) -> bytes | None:
        """Return what a replica's newest decisions looked at, compressed; None if it is silent."""
        ...


class HandleClient:
    """Engine replicas behind a Serve handle."""

    def __init__(self, handle: DeploymentHandle) -> None:
        self._handle = handle
        self._streams = handle.options(stream=True)
        self._live: set[str] = set()
        self._replicas: tuple[str, ...] = ()

    @property
    def num_live(self) -> int:
        """Requests that wait or run, wherever they are."""
        return len(self._live)

    async def generate(
        self, request: GenerateRequest, carrier: str = ""
    ) -> AsyncGenerator[Step, None]:
        """Yield the request's steps; where its replica dies, continue on another.

        Noise is keyed by seed and absolute position, and the exact engine's logits do not
        depend on how a prefix was computed: a request that brings its emitted tokens with it is
        continued by the very ids that were lost.
        """
        emitted: list[int] = []
        for attempt in range(_MAX_RESUMES + 1):
            remaining = _remaining(request, emitted, attempt)
            try:
                async with aclosing(self._placed(remaining, carrier)) as steps:
                    async for step in steps:
                        emitted.extend(step.token_ids)
                        yield step
                return
            except RayActorError as error:
                logger.warning(
                    "replica lost (%s) under %s after %d tokens: resuming",
                    type(error).__name__,
                    request.request_id,
                    len(emitted),
                )
            except (RayError, RayServeException) as error:
                yield Step(error=_api_error_of(error))
                return
        yield Step(error=errors.engine_failure("every replica that took this request died"))

    async def _placed(self, request: GenerateRequest, carrier: str) -> AsyncGenerator[Step, None]:
        """Yield the steps of one replica, asking again for a while where Serve's queue looks full.

        The ingress has counted this request in already. Serve counts what it is just handing to
        a replica as queued still, so its queue can look full while a slot is free.
        """
        gives_up_at = time.monotonic() + _PLACING_S
        self._live.add(request.request_id)
        try:
            while True:
                try:
                    async with aclosing(self._attempt(request, carrier)) as steps:
                        async for step in steps:
                            yield step
                    return
                except BackPressureError:
                    if time.monotonic() >= gives_up_at:
                        raise
                    await asyncio.sleep(_PLACING_PAUSE_S)
        finally:
            self._live.discard(request.request_id)

    async def _attempt(self, request: GenerateRequest, carrier: str) -> AsyncGenerator[Step, None]:
        """Yield the steps of one replica; leaving early ends the request there."""
        is_over = False
        begun = self._streams.generate.remote(request, carrier)
        response = cast("DeploymentResponseGenerator[Step]", begun)
        try:
            async for step in response:
                is_over = step.is_last
                yield step
            is_over = True
        except (RayActorError, BackPressureError):
            is_over = True
            raise
        finally:
            if not is_over:
                response.cancel()

    async def describe(self) -> AsyncGenerator[ModelCard | FilePart, None]:
        """Yield the model's card, then its tokenizer files in parts."""
        parts = self._streams.describe.remote()
        async for part in cast("DeploymentResponseGenerator[ModelCard | FilePart]", parts):
            yield part

    async def check_in(self, briefing: Briefing | None = None) -> tuple[EngineStatus, ...]:
        """Keep this client's requests alive everywhere; return how each replica is.

        Serve does not tell a replica that an ingress died: in its default mode a generator
        runs on to its last token. Without these calls a replica ends such requests itself.
        A broadcast passes by the limit on ongoing requests, so load alone looks like no death;
        a replica that is too slow to answer in time is left out, and costs the others nothing.
        """
        answers = await self._ask_all("check_in", tuple(self._live), self._replicas, briefing)
        statuses = tuple(answer for answer in answers if isinstance(answer, EngineStatus))
        # No replica knows the others, and an order can name any.
        self._replicas = tuple(status.replica for status in statuses)
        return statuses

    async def signals(self, replica: str, most: int) -> bytes | None:
        """Return what a replica's newest decisions looked at, compressed; None if it is silent.

        Serve's handles name no replica: all are asked, and the one that is meant answers.
        """
        answers = await self._ask_all("signals", replica, most)
        return next((answer for answer in answers if isinstance(answer, bytes)), None)

    async def _ask_all(self, method: str, *arguments: object) -> list[object]:
        """Return what each replica answers, or raises."""
        response = self._handle.broadcast(method, *arguments)
        # `results_async` waits for all replicas together: one frozen process would hide the rest.
        results = await response._fetch_replica_results_async()  # pyright: ignore[reportPrivateUsage]
        return await asyncio.gather(
            *(asyncio.wait_for(result.get_async(), _ANSWER_TIMEOUT_S) for result in results),
            return_exceptions=True,
        )


def _remaining(request: GenerateRequest, emitted: list[int], attempt: int) -> GenerateRequest:
    """Return the request as another replica goes on with it."""
    if attempt == 0:
        return request
    # A new name: the lost replica may only be out of reach, still running the old one.
    name = f"{request.request_id}-{attempt}"
    return replace(request, request_id=name, emitted_token_ids=tuple(emitted))


def _api_error_of(error: Exception) -> ApiError:
    """Translate what Serve raises; the engine's own refusals come as steps."""
    if isinstance(error, BackPressureError):
        return errors.queue_full(QUEUE_FULL, error.retry_after_s or RETRY_AFTER_S)
    logger.error("engine call failed", exc_info=error)
    return errors.engine_failure(f"the engine failed ({type(error).__name__}); retry it")

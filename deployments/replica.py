"""One engine behind a Serve handle: load it, stream from it, say how it is, end it."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from deployments.config import limits_from_user_config, vain_orders
from deployments.load_progress import LoadProgress
from deployments.logs import join_serve_log
from deployments.model_parts import model_parts
from deployments.openai import errors
from deployments.operators.latency import RequestClock
from deployments.operators.replica_office import ReplicaOffice
from deployments.operators.report import Briefing
from deployments.peers import Peers
from deployments.room import name_of_this_replica, room_of_this_replica
from deployments.streams import OpenStreams
from deployments.telemetry.process import engine_telemetry
from deployments.wire import EngineStatus, FilePart, LoadReport, ModelCard, Step
from dflash.config import EngineConfig
from dflash.errors import (
    ConfigError,
    EngineError,
    OverloadedError,
    RequestError,
)
from dflash.request import GenerateRequest, TokenOutput

if TYPE_CHECKING:
    from deployments.operators.memory_desk import MemoryDesk
    from deployments.policy_desk import PolicyDesk

    # Both import torch, which the ingress does without.
    from dflash.engine import Engine
    from dflash.loop import EngineLoop

# An ingress checks in every second; after many missed ones it is taken for dead.
LEASE_S = 20.0
_GUARD_INTERVAL_S = 1.0

OnProgress = Callable[[str, float], None]
OnOutputs = Callable[[tuple[TokenOutput, ...]], None]

logger = logging.getLogger(__name__)


class EngineUnhealthyError(RuntimeError):
    """The engine has work and does not step, or its thread died: only a restart helps."""


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """A loaded engine, and the thread that runs it.

    Attributes:
        engine: The engine.
        loop: Its thread.
        policy: What decides on drafts; None where the plan is fixed.
        memory: Knows where the memory is; None where nobody does.
    """

    engine: "Engine"
    loop: "EngineLoop"
    policy: "PolicyDesk | None" = None
    memory: "MemoryDesk | None" = None


class EngineOpener(Protocol):
    """Loads an engine and starts its thread; blocks for as long as that takes."""

    def __call__(
        self, config: EngineConfig, on_progress: OnProgress, on_outputs: OnOutputs
    ) -> RunningEngine:
        """Return the running engine."""
        ...


class EngineReplica:
    """Serves the streams of one engine.

    Its constructor returns when the model is loaded, so that Serve routes no request to a
    loading replica while another can answer; meanwhile it reports its progress.
    """

    # Serve awaits constructors, which type checkers do not know.
    async def __init__(  # type: ignore[misc]
        self,
        config: EngineConfig,
        opener: EngineOpener,
        report: Callable[[LoadReport], Awaitable[None]],
        model_name: str = "",
    ) -> None:
        """Load the engine.

        Args:
            config: What to load.
            opener: Loads it.
            report: Tells the ingresses how far loading is.
            model_name: What clients call it.
        """
        join_serve_log()
        self._running: RunningEngine | None = None
        self._streams = OpenStreams(LEASE_S)
        self._user_config_problem: str | None = None
        self._configured_limits = config.limits
        self._name = name_of_this_replica()
        self._peers = Peers()
        self._office = ReplicaOffice(self._name, self._require_running)
        self._telemetry = engine_telemetry(model_name, self._name, lambda: self.check_in(()))
        events = asyncio.get_running_loop()

        def on_outputs(outputs: tuple[TokenOutput, ...]) -> None:
            # Once a step, whatever the number of requests: waking a loop is a system call.
            events.call_soon_threadsafe(self._streams.deliver, outputs)

        progress = LoadProgress(report)
        reporting = asyncio.create_task(progress.keep_reporting())
        try:
            self._running = await asyncio.to_thread(opener, config, progress.note, on_outputs)
        except EngineError as error:
            # Serve tries again and prints a traceback each time; the message is what helps.
            logger.error("the engine cannot be loaded: %s", error)
            await progress.send(problem=str(error))
            raise error.with_traceback(None) from None
        finally:
            reporting.cancel()
        logger.info("engine ready")
        self._telemetry.start()
        self._guard = asyncio.create_task(self._keep_watch())

    async def generate(self, request: GenerateRequest, carrier: str = "") -> AsyncIterator[Step]:
        """Yield an empty step once the engine took the request, then one step a message.

        Refusals are steps too: exceptions would cross the handle with this process's traceback.
        The carrier names the span that the request belongs to; nothing where nobody traces it.
        """
        traced = self._telemetry.begin(request.request_id, carrier)
        inbox = self._streams.open(request.request_id, time.monotonic())
        times = RequestClock(time.monotonic())
        is_over = True
        try:
            grammar = request.grammar
            matcher = grammar and await asyncio.to_thread(self._loop.matcher, grammar)
            self._loop.submit(request, matcher)
            is_over = False
            yield Step(replica=self._name)
            while not is_over:
                step = await inbox.take()
                is_over = step.is_last
                times.note(len(step.token_ids), time.monotonic())
                traced.note(step)
                yield step
        except OverloadedError as error:
            yield Step(error=errors.queue_full(str(error), error.retry_after_s))
        except RequestError as error:
            yield Step(error=errors.invalid_parameter(error.field or "prompt", str(error)))
        finally:
            self._streams.close(request.request_id)
            self._office.latency.enter(times, time.monotonic())
            traced.end()
            if not is_over:
                # The client left, or this replica is told to stop.
                self._loop.abort(request.request_id)

    async def describe(self) -> AsyncIterator[ModelCard | FilePart]:
        """Yield the model's card, then its tokenizer files in parts.

        Raises:
            CheckpointError: The checkpoint has no folder, so no tokenizer.
        """
        async for part in model_parts(self._engine):
            yield part

    def status(self) -> EngineStatus:
        """Return how this replica is; waits for no step."""
        health, counts = self._loop.health(), self._loop.snapshot()
        policy = self._require_running().policy
        return EngineStatus(
            is_healthy=health.is_healthy,
            sentence=health.sentence,
            pid=os.getpid(),
            num_running=counts.num_running,
            num_waiting=counts.num_waiting,
            num_pages_used=counts.num_pages_used,
            num_pages_cached=counts.num_pages_cached,
            num_pages_total=counts.num_pages_total,
            num_steps=counts.num_steps,
            num_preemptions=counts.num_preemptions,
            limits=self._engine.limits,
            user_config_problem=self._user_config_problem,
            policy=policy and policy.status(),
            replica=self._name,
            room=room_of_this_replica(),
            steps=counts,
            decisions=self._telemetry.decisions,
        )

    def check_in(
        self,
        request_ids: Iterable[str],
        replicas: Collection[str] = (),
        briefing: Briefing | None = None,
    ) -> EngineStatus:
        """Prolong the leases of requests that an ingress still reads, and say how this one is.

        Args:
            request_ids: The requests.
            replicas: Names of all replicas, as far as the ingress knows them.
            briefing: What operators have ordered, and what of the decisions is known.
        """
        self._peers.note(replicas, time.monotonic())
        self._streams.renew(request_ids, time.monotonic())
        briefing = briefing or Briefing()
        self._office.take(briefing)
        return replace(self.status(), report=self._office.report(briefing, self._loop.snapshot()))

    async def signals(self, replica: str, most: int) -> bytes | None:
        """Return what the newest decisions looked at, compressed; None if another one is meant.

        Args:
            replica: Whose are wanted: a broadcast reaches all.
            most: So many decisions at most.
        """
        return await asyncio.to_thread(self._office.signals, replica, most)

    def reconfigure(self, user_config: Any) -> None:
        """Take new limits between two steps; what is invalid leaves the old ones in force.

        Raising would make Serve replace this replica, and its running requests would pay for
        a slip in a file.
        """
        policy = self._require_running().policy
        try:
            limits = limits_from_user_config(user_config, self._configured_limits)
            if policy is not None:
                policy.take_orders(user_config, self._peers.known(time.monotonic()))
        except ConfigError as error:
            self._user_config_problem = str(error)
            logger.error("user_config not taken, the old one stays in force: %s", error)
            return
        self._user_config_problem = None if policy else vain_orders(user_config)
        if limits != self._engine.limits:
            logger.info("limits change from %s to %s", self._engine.limits, limits)
            self._loop.reconfigure(limits)

    def check_health(self) -> None:
        """Let Serve replace this replica when only that helps.

        Serve asks for the first time when the replica has its first `user_config`, if there is one.

        Raises:
            EngineUnhealthyError: There is work and no step, or the thread died.
        """
        running = self._require_running()
        if running.policy is not None:
            running.policy.serve()
        health = running.loop.health()
        if not health.is_healthy:
            raise EngineUnhealthyError(health.sentence)

    def __del__(self) -> None:
        """End the engine's thread; Serve has waited for the streams by now."""
        running, self._running = getattr(self, "_running", None), None
        if running is not None:
            self._guard.cancel()
            running.loop.stop()
            self._telemetry.stop()
            for part in (running.policy, running.memory):
                if part is not None:
                    part.stop()

    @property
    def _engine(self) -> "Engine":
        return self._require_running().engine

    @property
    def _loop(self) -> "EngineLoop":
        return self._require_running().loop

    def _require_running(self) -> RunningEngine:
        if self._running is None:
            raise EngineUnhealthyError("the engine is not running")
        return self._running

    async def _keep_watch(self) -> None:
        """Each second: let an idle engine's policy look around, end requests without a reader."""
        while True:
            await asyncio.sleep(_GUARD_INTERVAL_S)
            if (policy := self._require_running().policy) is not None:
                self._loop.look_around()
                self._telemetry.tell_decisions(policy.record)
            for request_id in self._streams.expired(time.monotonic()):
                logger.warning("request %s has no reader any more; it is ended", request_id)
                # Its last message ends the stream; until then one abort is enough.
                self._streams.renew((request_id,), time.monotonic())
                self._loop.abort(request_id)

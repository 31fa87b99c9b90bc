"""The real HTTP surface over a scripted engine, on a real socket, without Ray."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from deployments.gateway import Gateway
from deployments.guard.guard import Guard
from deployments.http import create_app
from deployments.ingress import running
from deployments.operators.report import Briefing
from deployments.replica import EngineReplica, OnOutputs, OnProgress, RunningEngine
from deployments.streams import StepInbox
from deployments.telemetry.process import ingress_telemetry
from deployments.watch import EngineWatch
from deployments.wire import EngineStatus, FilePart, LoadReport, ModelCard, Step
from dflash.config import EngineConfig
from dflash.request import GenerateRequest
from tests.rigs.fake_engine import FakeLoop, open_fake

MODEL = "fake"


class LocalClient:
    """An `EngineClient` whose replica lives in this process."""

    def __init__(self, replica: EngineReplica) -> None:
        self.replica = replica
        self.num_live = 0

    async def generate(
        self, request: GenerateRequest, carrier: str = ""
    ) -> AsyncGenerator[Step, None]:
        self.num_live += 1
        try:
            async with aclosing(self.replica.generate(request, carrier)) as steps:
                async for step in steps:
                    yield step
        finally:
            self.num_live -= 1

    def describe(self) -> AsyncGenerator[ModelCard | FilePart, None]:
        return self.replica.describe()

    async def check_in(self, briefing: Briefing) -> tuple[EngineStatus, ...]:
        return (self.replica.check_in((), (), briefing),)

    async def signals(self, replica: str, most: int) -> bytes | None:
        return await self.replica.signals(replica, most)


@dataclass
class FakeServer:
    """A running server and its parts."""

    base_url: str
    loop: FakeLoop
    replica: EngineReplica

    @property
    def model_folder(self) -> Path:
        """Where the tokenizer of the model that does not exist lies."""
        return self.loop.engine.model_folder


@contextmanager
def one_step_a_message() -> Iterator[None]:
    """Keep a busy machine's reader from getting several steps in one message."""
    take_all = StepInbox.take

    async def take_one(inbox: StepInbox) -> Step:
        await inbox._has_some.wait()
        inbox._outputs, later = inbox._outputs[:1], inbox._outputs[1:]
        step = await take_all(inbox)
        if later:
            inbox._outputs = later
            inbox._has_some.set()
        return step

    StepInbox.take = take_one
    try:
        yield
    finally:
        StepInbox.take = take_all


def eventually(claim: Callable[[], bool], limit_s: float = 20.0) -> bool:
    """Wait for what another thread will make true; return whether it did."""
    deadline_s = time.monotonic() + limit_s
    while not claim() and time.monotonic() < deadline_s:
        time.sleep(0.005)
    return claim()


async def until(claim: Callable[[], bool]) -> None:
    """Wait for what another task of this loop, or another thread, will make true."""
    for _ in range(4000):
        if claim():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came true")


async def open_replica(config: EngineConfig) -> tuple[EngineReplica, FakeLoop]:
    """Return a replica over a fake engine; Serve awaits constructors likewise."""
    opened: list[RunningEngine] = []

    def opener(
        config: EngineConfig, on_progress: OnProgress, on_outputs: OnOutputs
    ) -> RunningEngine:
        opened.append(open_fake(config, on_progress, on_outputs))
        return opened[0]

    async def report(_report: LoadReport) -> None:
        pass

    replica = EngineReplica.__new__(EngineReplica)
    await replica.__init__(config, opener, report)
    return replica, opened[0].loop  # type: ignore[return-value]


@contextmanager
def serving(
    config: EngineConfig | None = None,
    guard: Guard | None = None,
    *,
    response_metrics: bool = False,
    client_type: type[LocalClient] = LocalClient,
) -> Iterator[FakeServer]:
    """Serve a fake engine until the block ends."""
    guard = guard or Guard()
    parts: list[tuple[uvicorn.Server, EngineWatch, EngineReplica, FakeLoop]] = []

    async def main() -> None:
        replica, loop = await open_replica(config or EngineConfig())
        client = client_type(replica)
        watch = EngineWatch(client)
        telemetry = ingress_telemetry(MODEL, "front")
        background = running(watch.run(), guard.run(), telemetry.run())
        gateway = Gateway(client, watch, MODEL, response_metrics=response_metrics)
        app = create_app(gateway, background, guard, telemetry)
        settings = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", ws="none")
        server = uvicorn.Server(settings)
        parts.append((server, watch, replica, loop))
        await server.serve()
        replica.__del__()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    if not eventually(lambda: bool(parts) and parts[0][0].started and bool(parts[0][1].statuses)):
        raise RuntimeError("the test server did not start")
    server, _, replica, loop = parts[0]
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield FakeServer(f"http://127.0.0.1:{port}", loop, replica)
    finally:
        server.should_exit = True
        thread.join(20)

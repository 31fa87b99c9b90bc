"""Replicas with policies in one process, and any number of ingresses in front: a fleet, no Ray."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import uvicorn

from benchmarks.rigs.made_up_times import step_times
from deployments.gateway import Gateway
from deployments.guard.guard import Guard
from deployments.http import create_app
from deployments.ingress import running
from deployments.operators.memory_desk import MemoryDesk
from deployments.operators.replica_office import ReplicaOffice
from deployments.operators.report import Briefing
from deployments.policy_desk import Holdings, PolicyDesk
from deployments.replica import EngineReplica
from deployments.watch import EngineWatch
from deployments.wire import EngineStatus, FilePart, ModelCard, Step
from dflash.config import EngineConfig
from dflash.memory import MemoryPlan
from dflash.plan import PLAIN, Decoding, PlanSignals
from dflash.request import GenerateRequest
from dflash.stats import DrafterStats, EngineCounts, Grades, StepStats
from policy.vram import StandInProbe
from tests.rigs.fake_engine import FakeLoop
from tests.rigs.http_server import eventually, open_replica

GIB = 1 << 30
MEMORY_PLAN = MemoryPlan(
    weights_bytes=6 * GIB,
    kv_reserved_bytes=8 * GIB,
    activation_peak_bytes=1 * GIB,
    other_bytes=2 * GIB,
    headroom_bytes=4 * GIB,
    total_bytes=24 * GIB,
    num_pages=64,
    page_size=16,
    drafter_weights_bytes=2 * GIB,
    drafter_kv_bytes=1 * GIB,
)


class Clock:
    """A clock that a test can push forward."""

    def __init__(self) -> None:
        self.pushed_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.pushed_s


@dataclass
class Member:
    """One replica of a fleet and its parts.

    Attributes:
        free_bytes: What its device says is free.
        drafter: Stands for all its drafters in memory.
        chance: How many of ten draft tokens are right at each place.
    """

    name: str
    replica: EngineReplica
    loop: FakeLoop
    desk: PolicyDesk
    clock: Clock
    free_bytes: list[int]
    drafter: SimpleNamespace
    last: StepStats = field(default_factory=StepStats)

    def steps(self, count: int, rows: int = 1, right: int = 10) -> None:
        """Let steps go by in which so many of ten draft tokens are right at each place."""
        decoding = tuple(Decoding(f"q{index}", 20) for index in range(rows))
        counts = EngineCounts(rows, 0, 0, 10, 0, 64)
        behind = {"dflash2": 0, "mtp": 0}
        for _ in range(count):
            self.clock.pushed_s += 0.012
            signals = PlanSignals(counts, decoding, self.last, behind, max_num_seqs=64)
            arm = self.desk.planner.plan(signals).arm
            self.last = _step(arm.drafter, arm.draft_length if arm != PLAIN else 0, rows, right)
            self.read_memory()

    def look_around(self) -> None:
        """Let the policy look around as an idle engine does each second."""
        self.clock.pushed_s += 1.1
        self.read_memory()
        counts = EngineCounts(0, 0, 0, 0, 0, 64)
        plan = self.desk.planner.plan(PlanSignals(counts, (), self.last, {"dflash2": 0, "mtp": 0}))
        self.drafter.is_held = "dflash2" not in plan.released

    def read_memory(self) -> None:
        """Ask the device now: the watch does so by real time, and a test pushes its own."""
        self.desk._watch._read()

    def close(self) -> None:
        """End it; its policy too where a test took that away."""
        self.replica.__del__()
        self.desk.stop()


async def open_member(name: str) -> Member:
    """Return a replica over a fake engine, with a policy that made-up times are measured for."""
    replica, loop = await open_replica(EngineConfig())
    clock, free_bytes = Clock(), [5 * GIB]
    probe = StandInProbe(lambda: (24 * GIB, free_bytes[0]))
    desk = PolicyDesk(step_times(), probe, name, Holdings(GIB, 2 * GIB), clock=clock)
    desk.start()
    drafter = SimpleNamespace(weights_bytes=2 * GIB, context_bytes=GIB, is_held=True)
    memory = MemoryDesk(MEMORY_PLAN, (drafter,), lambda: desk.reading)
    replica._name = name
    replica._running = replace(replica._require_running(), policy=desk, memory=memory)
    replica._office = ReplicaOffice(name, replica._require_running)
    return Member(name, replica, loop, desk, clock, free_bytes, drafter)


class FleetClient:
    """An `EngineClient` of one ingress. Every ingress has its own; the replicas are shared.

    Attributes:
        members: The replicas; may change at any time.
        silent: Names of those that do not answer.
    """

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self.silent: set[str] = set()
        self.num_live = self.num_asked = 0

    def _answering(self) -> list[Member]:
        return [member for member in self.members if member.name not in self.silent]

    async def generate(
        self, request: GenerateRequest, carrier: str = ""
    ) -> AsyncGenerator[Step, None]:
        self.num_live += 1
        self.num_asked += 1
        answering = self._answering()
        replica = answering[self.num_asked % len(answering)].replica
        try:
            async with aclosing(replica.generate(request, carrier)) as steps:
                async for step in steps:
                    yield step
        finally:
            self.num_live -= 1

    def describe(self) -> AsyncGenerator[ModelCard | FilePart, None]:
        return self.members[0].replica.describe()

    async def check_in(self, briefing: Briefing) -> tuple[EngineStatus, ...]:
        names = [member.name for member in self._answering()]
        return tuple(member.replica.check_in((), names, briefing) for member in self._answering())

    async def signals(self, replica: str, most: int) -> bytes | None:
        for member in self._answering():
            if (text := await member.replica.signals(replica, most)) is not None:
                return text
        return None


@dataclass
class FleetServer:
    """A fleet behind one ingress on a real socket.

    Attributes:
        base_url: Where it answers.
        members: Its replicas.
        client: The ingress's end of the handle.
    """

    base_url: str
    members: list[Member]
    client: FleetClient

    def member(self, name: str) -> Member:
        """Return a replica by its name."""
        return next(member for member in self.members if member.name == name)


@contextmanager
def serving_fleet(names: tuple[str, ...], guard: Guard | None = None) -> Iterator[FleetServer]:
    """Serve replicas of these names until the block ends."""
    parts: list[tuple[uvicorn.Server, EngineWatch, FleetClient]] = []

    async def main() -> None:
        members = [await open_member(name) for name in names]
        client = FleetClient(members)
        watch = EngineWatch(client)
        app = create_app(Gateway(client, watch, "fake"), running(watch.run()), guard)
        settings = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", ws="none")
        server = uvicorn.Server(settings)
        parts.append((server, watch, client))
        await server.serve()
        for member in members:
            member.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    if not eventually(lambda: bool(parts) and parts[0][0].started and bool(parts[0][1].statuses)):
        raise RuntimeError("the test server did not start")
    server, _, client = parts[0]
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield FleetServer(f"http://127.0.0.1:{port}", client.members, client)
    finally:
        server.should_exit = True
        thread.join(20)


def _step(drafter: str, length: int, rows: int, right: int) -> StepStats:
    if not length:
        return StepStats(num_decoding=rows, step_time_s=0.01, num_emitted_tokens=rows)
    graded, accepted, alive = [], [], 10 * rows
    for _ in range(length):
        graded.append(alive)
        alive = alive * right // 10
        accepted.append(alive)
    kept = sum(accepted) // 10
    grades = Grades(tuple(graded), tuple(accepted))
    did = {drafter: DrafterStats(rows, rows * length, kept, grades)}
    return StepStats(
        num_decoding=rows, by_drafter=did, step_time_s=0.013, num_emitted_tokens=rows + kept
    )

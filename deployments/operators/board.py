"""What one ingress knows of all replicas, for operators, and what it tells them in turn."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from deployments.operators.decision_ring import DecisionRing
from deployments.operators.orders import Orders
from deployments.operators.report import Briefing
from deployments.wire import EngineStatus

# A replica that said nothing for longer is called stale.
STALE_S = 5.0
# One that said nothing for so long has gone for good: it was replaced, or scaled away.
_GONE_S = 120.0


@dataclass(frozen=True, slots=True)
class Heard:
    """What one replica last said.

    Attributes:
        status: That.
        age_s: How long ago, seconds.
    """

    status: EngineStatus
    age_s: float

    @property
    def is_stale(self) -> bool:
        """Whether it is silent for so long that it may be otherwise by now."""
        return self.age_s > STALE_S


class FleetBoard:
    """Keeps the newest word of every replica. Used on the event loop only.

    Attributes:
        decisions: What the replicas decided.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin with nothing heard.

        Args:
            clock: Seconds that never go back.
            wall_clock: Seconds since the epoch.
        """
        self.decisions = DecisionRing()
        self._clock, self._wall_clock = clock, wall_clock
        self._orders = Orders()
        self._heard: dict[str, tuple[float, EngineStatus]] = {}
        self._is_urgent = asyncio.Event()
        self._was_heard = asyncio.Event()
        # How many orders were given, are in the newest briefing, and were heard of everywhere.
        self._num_given = self._num_briefed = self._num_heard = 0

    @property
    def now_s(self) -> float:
        """The time, seconds since the epoch."""
        return self._wall_clock()

    @property
    def orders(self) -> Orders:
        """All that is ordered."""
        return self._orders

    def briefing(self) -> Briefing:
        """Return what to tell every replica."""
        self._is_urgent.clear()
        self._num_briefed = self._num_given
        return Briefing(self._orders, self.decisions.known())

    def hear(self, statuses: Iterable[EngineStatus]) -> None:
        """Take the answers to a briefing."""
        now_s = self._clock()
        for status in statuses:
            name, report = status.replica, status.report
            self._heard[name] = (now_s, status)
            if report is None:
                continue
            self._orders = self._orders.merged(report.orders, self.now_s)
            if report.desk is not None:
                desk = report.desk
                self.decisions.add(name, desk.decisions, desk.clock_offset_s, desk.num_repeats)
        self._heard = {n: each for n, each in self._heard.items() if now_s - each[0] <= _GONE_S}
        self._num_heard = self._num_briefed
        self._was_heard.set()
        self._was_heard = asyncio.Event()

    def heard(self) -> tuple[Heard, ...]:
        """Return the newest word of every replica, by name."""
        now_s = self._clock()
        return tuple(
            Heard(status, max(0.0, now_s - at_s))
            for _, (at_s, status) in sorted(self._heard.items())
        )

    async def order(self, orders: Orders, limit_s: float) -> None:
        """Put orders in force: returns once the replicas have heard of them, or time is up.

        Args:
            orders: In the place of those before.
            limit_s: Most seconds to wait.
        """
        self._orders = orders
        self._num_given += 1
        number = self._num_given
        self._is_urgent.set()
        try:
            async with asyncio.timeout(limit_s):
                # A check-in that was under way has told them what was ordered before.
                while self._num_heard < number:
                    await self._was_heard.wait()
        except TimeoutError:
            # They are told at every check-in from now on, and the answer shows who has obeyed.
            return

    async def rest(self, seconds: float) -> None:
        """Wait until the next check-in is due, or something was ordered."""
        try:
            async with asyncio.timeout(seconds):
                await self._is_urgent.wait()
        except TimeoutError:
            return

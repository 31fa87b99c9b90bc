"""A replica's end of what operators see and order: obeys briefings, and reports at check-ins."""

import time
import zlib
from typing import TYPE_CHECKING

from deployments.operators.latency import LatencyWindow
from deployments.operators.orders import Orders
from deployments.operators.report import Briefing, ReplicaReport
from dflash.stats import EngineCounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from deployments.policy_desk import PolicyDesk
    from deployments.replica import RunningEngine


class ReplicaOffice:
    """Keeps the orders of one replica and answers for it. Used on the event loop only.

    Attributes:
        latency: How long requests take here.
    """

    def __init__(self, replica: str, running: "Callable[[], RunningEngine]") -> None:
        """Begin with no orders.

        Args:
            replica: Its name.
            running: Returns the engine with its policy and its memory.
        """
        self.latency = LatencyWindow()
        self._replica, self._running = replica, running
        self._orders = Orders()

    def take(self, briefing: Briefing) -> None:
        """Learn what an ingress knows, and obey it from the next decision on."""
        orders = self._orders.merged(briefing.orders, time.time())
        if orders.pins != self._orders.pins and self._policy is not None:
            self._policy.take_pins(orders.live_pins(time.time()))
        self._orders = orders

    def report(self, briefing: Briefing, counts: EngineCounts) -> ReplicaReport:
        """Return what an ingress wants to know.

        Args:
            briefing: Says what it knows already.
            counts: The engine's.
        """
        policy, memory = self._policy, self._running().memory
        known = briefing.known.get(self._replica, 0)
        return ReplicaReport(
            self._orders,
            self.latency.report(time.monotonic()),
            memory and memory.report(counts),
            policy and policy.report(known),
        )

    def signals(self, replica: str, most: int) -> bytes | None:
        """Return the newest decisions as a compressed file; None where another one is meant.

        Args:
            replica: Whose are wanted.
            most: So many decisions at most.
        """
        if replica != self._replica or self._policy is None:
            return None
        return zlib.compress(self._policy.record.signals_text(most).encode())

    @property
    def _policy(self) -> "PolicyDesk | None":
        return self._running().policy

"""The policy of one replica with all it needs: memory that is watched, orders, and a record."""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deployments.control import PolicyPlanner
from deployments.decision_record import DecisionRecord
from deployments.memory_watch import MemoryWatch
from deployments.observation import Sources, Surroundings
from deployments.orders import Moment, Orders, orders_at_reload, orders_at_start
from deployments.policy_status import PolicyStatus
from deployments.step_times import StepTimes
from policy.vram import MemoryProbe

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Holdings:
    """Memory that drafters hold and can give back.

    Attributes:
        context_bytes: All drafters' context pages.
        weights_bytes: All drafters' weights.
    """

    context_bytes: int = 0
    weights_bytes: int = 0


class PolicyDesk:
    """Starts and stops what a replica's policy consists of, and hands orders to it.

    Attributes:
        planner: The policy, for the engine.
        record: What it decided.
    """

    def __init__(
        self,
        times: StepTimes,
        probe: MemoryProbe,
        replica: str,
        holdings: Holdings | None = None,
        record_folder: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            times: Drafters and step times.
            probe: Who knows the device's memory.
            replica: Its name, for pins and for files.
            holdings: What the drafters hold.
            record_folder: Where decisions are written, and what they looked at; None keeps the
                newest decisions in memory.
            clock: Seconds that never go back.
        """
        self._ladder, self._clock, self._replica = times.ladder, clock, replica
        self._watch = MemoryWatch(probe, clock=clock, profiled_mhz=times.clock_mhz)
        self.record = DecisionRecord(replica, record_folder, keeps_signals=True, clock=clock)
        holdings = holdings or Holdings()
        sources = Sources(
            replica=replica,
            reading=lambda: self._watch.latest,
            context_bytes=holdings.context_bytes,
            weights_bytes=holdings.weights_bytes,
            clock=clock,
        )
        self.planner = PolicyPlanner(times, sources=sources, on_decision=self.record.note)
        self._is_starting = True

    def start(self) -> None:
        """Begin to watch and to write."""
        self._watch.start()
        self.record.start()

    def stop(self) -> None:
        """End both."""
        self._watch.stop()
        self.record.stop()

    def status(self) -> PolicyStatus:
        """Return what is in force."""
        return self.planner.status()

    def serve(self) -> None:
        """Take orders as those of somebody who is there to read why they are refused."""
        self._is_starting = False

    def take_orders(self, user_config: Any, replicas: Collection[str]) -> None:
        """Let the policy obey a `user_config` from its next decision on.

        The first one before it serves may be an old one, which every new replica is given.

        Args:
            user_config: The whole of it.
            replicas: Names of the replicas that are known, this one among them or not.

        Raises:
            ConfigError: Something in it cannot work; what was ordered before stays.
        """
        moment = Moment(datetime.now(UTC), self._clock())
        if self._is_starting:
            orders = self._first_orders(user_config, moment)
        else:
            known = {*replicas, self._replica}
            orders = orders_at_reload(user_config, self._ladder, known, moment)
        self._is_starting = False
        self.planner.surroundings = Surroundings(orders.limits, orders.pins)

    def _first_orders(self, user_config: Any, moment: Moment) -> Orders:
        orders = orders_at_start(user_config, self._ladder, moment)
        for sentence in orders.lapsed:
            logger.warning("%s", sentence)
        return orders

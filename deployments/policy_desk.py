"""The policy of one replica with all it needs: memory that is watched, orders, and a record."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deployments.control import PolicyPlanner
from deployments.decision_record import DecisionRecord
from deployments.memory_watch import MemoryWatch
from deployments.observation import Sources, Surroundings
from deployments.operators.desk_reporter import DeskReporter
from deployments.operators.orders import StandingPin
from deployments.operators.report import DeskReport
from deployments.orders import Moment, Orders, orders_at_reload, orders_at_start
from deployments.pin_order import arm_from
from deployments.policy_status import PolicyStatus
from deployments.step_times import StepTimes
from policy.errors import PolicyError
from policy.limits import Limits
from policy.pins import ALL_REPLICAS, Pin, pin_in_force
from policy.readings import MemoryReading
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
        self._reporter = DeskReporter(self.record, times.ladder, clock)
        holdings = holdings or Holdings()
        sources = Sources(
            replica=replica,
            reading=lambda: self._watch.latest,
            context_bytes=holdings.context_bytes,
            weights_bytes=holdings.weights_bytes,
            clock=clock,
        )
        self.planner = PolicyPlanner(times, sources=sources, on_decision=self._reporter.note)
        self._is_starting = True
        self._orders = Orders(Limits())
        self._standing: dict[Pin, StandingPin] = {}

    @property
    def reading(self) -> MemoryReading:
        """The newest reading of device memory."""
        return self._watch.latest

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
        self._orders = orders
        self._obey()

    def take_pins(self, pins: Sequence[StandingPin]) -> None:
        """Let the policy obey pins that were ordered over HTTP from its next decision on.

        They come after those of a `user_config`, so that whoever pins in a hurry is obeyed.

        Args:
            pins: All that hold, the oldest first.
        """
        now = {self._pin_of(standing): standing for standing in pins}
        self._standing = {pin: standing for pin, standing in now.items() if pin is not None}
        self._obey()

    def report(self, known: int) -> DeskReport:
        """Return what the policy does, and what it changed since.

        Args:
            known: Number of the newest change that the asker has.
        """
        surroundings = self.planner.surroundings
        pin = pin_in_force(surroundings.pins, self._replica, self._clock())
        standing = None if pin is None else self._standing_of(pin)
        return self._reporter.report(known, standing, surroundings.limits)

    def _obey(self) -> None:
        pins = (*self._orders.pins, *self._standing)
        self.planner.surroundings = Surroundings(self._orders.limits, pins)

    def _pin_of(self, standing: StandingPin) -> Pin | None:
        """Return a pin as the policy knows it; None where it has no such drafter.

        The ingress has checked it against the replicas that it knew; one that starts with other
        drafters decides for itself.
        """
        arm = arm_from(standing.arm)
        expires_s = standing.expires_at_s - self.record.clock_offset_s
        try:
            if arm is None:
                raise PolicyError(f"{standing.arm!r} is no arm")
            anywhere = Pin(arm, (ALL_REPLICAS,), standing.author, standing.why, expires_s)
            anywhere.check(self._ladder, (), 0.0)
        except PolicyError as error:
            logger.warning("pin %s does nothing here: %s", standing.pin_id, error)
            return None
        return replace(
            anywhere, replicas=standing.replicas, release_drafter=standing.release_drafter
        )

    def _standing_of(self, pin: Pin) -> StandingPin:
        """Return a pin as people see it; one of a `user_config` has no name of its own."""
        nameless = StandingPin(
            "",
            pin.arm.name,
            pin.replicas,
            pin.author,
            pin.reason,
            made_at_s=0.0,
            expires_at_s=pin.expires_s + self.record.clock_offset_s,
        )
        return self._standing.get(pin, nameless)

    def _first_orders(self, user_config: Any, moment: Moment) -> Orders:
        orders = orders_at_start(user_config, self._ladder, moment)
        for sentence in orders.lapsed:
            logger.warning("%s", sentence)
        return orders

"""What memory allows: which step of release a replica is on, as a function of readings alone."""

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from policy.limits import MemoryLimits
from policy.readings import MemoryReading, MemoryTrouble

# Preemptions count as pressure for so long, seconds.
_PREEMPTION_S = 10.0
# A drafter comes back after so many seconds of calm; releases of memory take longer to undo.
_SETTLE_S = 5.0
# A device that does not answer any more is not trusted to be as free as it was, seconds.
_BLIND_S = 10.0


class MemoryLevel(StrEnum):
    """How short memory is."""

    GREEN = "green"
    AMBER = "amber"
    RED = "red"


class Release(IntEnum):
    """What has been given up for memory, least first; each includes those before it."""

    NOTHING = 0
    NARROWER_DRAFTS = 1
    HEAVY_DRAFTER = 2
    DRAFTING = 3
    CONTEXT_PAGES = 4
    WEIGHTS = 5


# A co-tenant that gives back a little must not bring back what would take it at once: a level is
# left where so many times as much is free as it is entered at.
_EXIT_FACTOR = 2.0
# Between which releases a level moves: at once to the first, step by step to the last.
_RANGES = {
    MemoryLevel.GREEN: (Release.NOTHING, Release.NOTHING),
    MemoryLevel.AMBER: (Release.NARROWER_DRAFTS, Release.HEAVY_DRAFTER),
    MemoryLevel.RED: (Release.DRAFTING, Release.WEIGHTS),
}
_ORDER = list(MemoryLevel)


@dataclass(frozen=True, slots=True)
class Pressure:
    """What memory looks like at one moment.

    Attributes:
        occupancy: Share of pages that requests own.
        num_preempted: Requests that lost their pages since the last decision.
        reading: The device.
        restore_bytes: Memory that undoing the newest release would take.
    """

    occupancy: float = 0.0
    num_preempted: int = 0
    reading: MemoryReading = field(default_factory=MemoryReading)
    restore_bytes: int = 0

    def has_room(self, limits: MemoryLimits) -> bool:
        """Return whether memory would not be short again with what was released taken back.

        Where nothing is known it may be tried: what is released must not stay so for good.
        """
        reading = self.reading
        if reading.total_bytes is None or reading.free_bytes is None:
            return True
        left_bytes = reading.free_bytes - self.restore_bytes
        return left_bytes >= _EXIT_FACTOR * limits.amber_free_fraction * reading.total_bytes


@dataclass(frozen=True, slots=True)
class Governor:
    """Where it stands.

    Attributes:
        level: How short memory is.
        device_level: How short the device alone is, as far as it last said.
        release: What is given up.
        most: How far it may go under the pressure there is.
        since_s: When what is given up changed, or when it began to be too much or too little,
            seconds; earlier where some of the calm before counts.
        preempted_s: The last two preemptions, seconds.
        answered_s: When the device last answered; None where it never did.
    """

    level: MemoryLevel = MemoryLevel.GREEN
    device_level: MemoryLevel = MemoryLevel.GREEN
    release: Release = Release.NOTHING
    most: Release = Release.NOTHING
    since_s: float = 0.0
    preempted_s: tuple[float, ...] = ()
    answered_s: float | None = None

    def after(self, pressure: Pressure, limits: MemoryLimits, now_s: float) -> "Governor":
        """Return where it stands now."""
        fraction = pressure.reading.free_fraction
        answered_s = self.answered_s if fraction is None else now_s
        device = _device_level(self, pressure.reading, limits, now_s)
        preempted_s = (*self.preempted_s, *[now_s] * min(2, pressure.num_preempted))[-2:]
        recent = sum(now_s - at < _PREEMPTION_S for at in preempted_s)
        pool = _pool_level(self.level, pressure.occupancy, limits)
        urgent = max(device, _preemption_level(recent), key=_ORDER.index)
        level = max(pool, urgent, key=_ORDER.index)
        least, most = _RANGES[level]
        if level is MemoryLevel.AMBER and urgent is MemoryLevel.GREEN:
            # A lighter drafter would free nothing of a pool that is only full.
            most = Release.NARROWER_DRAFTS
        release, since_s = self._released(least, most, limits, now_s)
        if self.release > max(most, Release.DRAFTING) and not pressure.has_room(limits):
            # Taken back, it would be released again a moment later, and again after that. Calm
            # begins when there is room.
            release, since_s = self.release, now_s
        return Governor(level, device, release, most, since_s, preempted_s, answered_s)

    def _released(
        self, least: Release, most: Release, limits: MemoryLimits, now_s: float
    ) -> tuple[Release, float]:
        """Return the release of a range: up at once into it, then a step at a time."""
        if self.release < least:
            return least, now_s
        # Calm is one state however calm it is: with a clock of its own for each level, memory that
        # gets less short would give back later than memory that stays as it is.
        stays_calm = self.release > max(most, self.most)
        since_s = self.since_s if stays_calm or most is self.most else now_s
        held_s = now_s - since_s
        if self.release < most and held_s >= limits.escalate_s:
            return Release(self.release + 1), now_s
        if self.release > most and held_s >= _calm_s(self.release, limits):
            less = Release(self.release - 1)
            # Calm that was long enough for one thing to come back counts for the next: only what
            # came back has to show that it stays calm with it.
            return less, now_s - max(0.0, _calm_s(less, limits) - _SETTLE_S)
        return self.release, since_s


def _calm_s(release: Release, limits: MemoryLimits) -> float:
    """Return the seconds of calm after which a release may be undone."""
    return limits.restore_s if release > Release.DRAFTING else _SETTLE_S


def _pool_level(held: MemoryLevel, occupancy: float, limits: MemoryLimits) -> MemoryLevel:
    """Return what the page pool alone says, which is never red.

    Under a queue a pool is always full: to draft nothing then would give up speculation wherever
    load is high, for pages that a draft which fits does not take from anybody. Requests that lose
    their pages are another matter.
    """
    is_green = held is MemoryLevel.GREEN
    amber_from = limits.amber_occupancy if is_green else limits.green_occupancy
    return MemoryLevel.AMBER if occupancy >= amber_from else MemoryLevel.GREEN


def _preemption_level(num_recent: int) -> MemoryLevel:
    return _ORDER[min(num_recent, 2)]


def _device_level(
    governor: Governor, reading: MemoryReading, limits: MemoryLimits, now_s: float
) -> MemoryLevel:
    """Return what the device says; where it says nothing, what it said, or the safer answer."""
    fraction = reading.free_fraction
    held = governor.device_level
    if fraction is None:
        if reading.trouble in (MemoryTrouble.ABSENT, MemoryTrouble.REFUSED):
            return MemoryLevel.GREEN
        is_blind = governor.answered_s is None or now_s - governor.answered_s >= _BLIND_S
        is_gone = reading.trouble is MemoryTrouble.LOST or is_blind
        return max(held, MemoryLevel.AMBER, key=_ORDER.index) if is_gone else held
    for level, bound in (
        (MemoryLevel.RED, limits.red_free_fraction),
        (MemoryLevel.AMBER, limits.amber_free_fraction),
    ):
        is_held = _ORDER.index(held) >= _ORDER.index(level)
        if fraction < bound * (_EXIT_FACTOR if is_held else 1.0):
            return level
    return MemoryLevel.GREEN

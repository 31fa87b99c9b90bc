"""The newest decisions of all replicas, kept by an ingress: they outlive the replicas' restarts."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from policy.decision import Realised
from policy.log import LogEntry
from policy.reasons import Reason

# Of one replica, and how many replicas, gone ones included.
_MOST_OF_ONE = 1000
_MOST_REPLICAS = 64
_TRIALS = (Reason.PROBE, Reason.PROBE_ENDED)


@dataclass(frozen=True, slots=True)
class Noted:
    """One change of plan, with all that an asker needs to place it.

    Attributes:
        replica: Whose.
        number: Of that replica's changes, from 1.
        at_s: When, seconds since the epoch.
        entry: The change.
    """

    replica: str
    number: int
    at_s: float
    entry: LogEntry


@dataclass(frozen=True, slots=True)
class Told:
    """One change with what came after it.

    Attributes:
        noted: The change.
        num_repeats: Decisions that it stood for, itself included.
        realised: What a trial has measured of it, then or later; None where none has.
        realised_after_s: How long after it, seconds.
    """

    noted: Noted
    num_repeats: int
    realised: Realised | None
    realised_after_s: float


class DecisionRing:
    """Keeps what replicas report. Used on the event loop only."""

    def __init__(self) -> None:
        self._of: dict[str, deque[Noted]] = {}
        self._running_on: dict[str, int] = {}

    def add(
        self,
        replica: str,
        changes: Iterable[tuple[int, LogEntry]],
        clock_offset_s: float,
        num_repeats: int,
    ) -> None:
        """Keep what a replica reports; what is known already is left out.

        Args:
            replica: Its name, which no other one ever has.
            changes: With their numbers, the oldest first.
            clock_offset_s: Seconds since the epoch less the time of the entries.
            num_repeats: Decisions since the newest of all its changes.
        """
        kept = self._of.setdefault(replica, deque(maxlen=_MOST_OF_ONE))
        for number, entry in changes:
            if number > self.known().get(replica, 0):
                kept.append(Noted(replica, number, entry.at_s + clock_offset_s, entry))
        self._running_on[replica] = num_repeats
        if len(self._of) > _MOST_REPLICAS:
            oldest = min(self._of, key=lambda name: _newest_s(self._of[name]))
            del self._of[oldest], self._running_on[oldest]

    def known(self) -> Mapping[str, int]:
        """Return the number of the newest change of each replica."""
        return {name: kept[-1].number for name, kept in self._of.items() if kept}

    def told(
        self,
        after: Mapping[str, int] | None = None,
        replica: str | None = None,
        reason: Reason | None = None,
    ) -> list[Told]:
        """Return the changes, the newest first.

        Args:
            after: Leave out those up to these numbers, by replica.
            replica: Leave out all others.
            reason: Leave out those with another one.
        """
        found = [
            each
            for name, kept in self._of.items()
            if replica in (None, name)
            for each in _told(tuple(kept), self._running_on[name])
            if each.noted.number > (after or {}).get(name, 0)
            and reason in (None, each.noted.entry.reason)
        ]
        return sorted(found, key=lambda each: (each.noted.at_s, each.noted.number), reverse=True)


def _newest_s(kept: deque[Noted]) -> float:
    return kept[-1].at_s if kept else 0.0


def _told(kept: tuple[Noted, ...], num_repeats: int) -> Iterator[Told]:
    """Yield the changes of one replica, the newest first.

    Args:
        kept: The oldest first.
        num_repeats: Decisions since the newest of them.
    """
    measured: Noted | None = None
    for noted in reversed(kept):
        entry = noted.entry
        is_change = entry.arm_to != entry.arm_from and entry.reason not in _TRIALS
        if entry.realised is not None:
            measured = noted
        realised = measured.entry.realised if measured is not None else None
        is_about_it = is_change and realised and realised.arm.drafter == entry.arm_to.drafter
        if measured is not None and (measured is noted or is_about_it):
            yield Told(noted, num_repeats + 1, realised, measured.at_s - noted.at_s)
        else:
            yield Told(noted, num_repeats + 1, None, 0.0)
        if is_change and entry.arm_from.drafter != entry.arm_to.drafter:
            # What was measured later says nothing of what ran before this.
            measured = None
        num_repeats = entry.num_repeats

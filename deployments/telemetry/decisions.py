"""A line, a span and a count for each decision of a replica's policy that changed something."""

import logging
from collections import Counter
from typing import Any, Protocol

from deployments.operators.words import sentence_of
from deployments.telemetry.span_form import Attribute
from deployments.telemetry.tracing import Tracing
from policy.log import LogEntry

logger = logging.getLogger(__name__)

Change = tuple[str, str, str]
"""Drafters before and after, and the reason."""


class Decisions(Protocol):
    """Keeps the newest decisions."""

    @property
    def clock_offset_s(self) -> float:
        """Seconds since the epoch less the time of the decisions."""
        ...

    def changes_after(self, number: int) -> tuple[tuple[int, LogEntry], ...]:
        """Return the changes after one that is known, with their numbers, the oldest first."""
        ...


class DecisionTeller:
    """Tells of decisions some time after they were made, away from the thread that makes them."""

    def __init__(self, replica: str, tracing: Tracing | None) -> None:
        """Begin before the first one.

        Args:
            replica: Whose decisions they are.
            tracing: Makes spans; None where nobody asks for them.
        """
        self._replica, self._tracing = replica, tracing
        self._known = 0
        self._counts: Counter[Change] = Counter()

    def tell(self, decisions: Decisions) -> None:
        """Tell of those that are new."""
        for number, entry in decisions.changes_after(self._known):
            self._known = number
            reason = str(entry.reason)
            self._counts[entry.arm_from.drafter, entry.arm_to.drafter, reason] += 1
            fields = decision_fields(entry)
            logger.info("%s", sentence_of(entry), extra={"decision": fields})
            if self._tracing is not None:
                attributes = {f"dflash.policy.{name}": value for name, value in fields.items()}
                attributes["dflash.replica"] = self._replica
                at_s = entry.at_s + decisions.clock_offset_s
                self._tracing.note("policy decision", attributes, at_s)

    def counts(self) -> tuple[tuple[Change, int], ...]:
        """Return how many there were of each kind; there are only so many kinds."""
        return tuple(self._counts.items())


def decision_fields(entry: LogEntry) -> dict[str, Attribute]:
    """Return what a line and a span say of a decision, without what does not apply."""
    fields: dict[str, Any] = {
        "from": entry.arm_from.name,
        "to": entry.arm_to.name,
        "reason": str(entry.reason),
        "num_decoding": entry.num_decoding,
        "num_waiting": entry.num_waiting,
        "memory": str(entry.memory),
        "release": entry.release.name.lower(),
        "expected_gain": _worth(entry),
        "realised_gain": None if entry.realised is None else entry.realised.gain,
        "acceptance_length": entry.acceptance_length,
        "author": entry.author,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _worth(entry: LogEntry) -> float | None:
    return next((worth.value for worth in entry.scores if worth.arm == entry.arm_to), None)

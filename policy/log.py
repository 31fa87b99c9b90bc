"""The decisions worth keeping: what changed, why, and what was considered instead."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from policy.arms import Arm
from policy.controller import decide
from policy.correction import Drift
from policy.decision import Blocked, Decision, Realised
from policy.errors import PolicyError
from policy.goodput import Worth
from policy.governor import MemoryLevel, Release
from policy.json_form import as_json, from_json
from policy.reasons import Reason
from policy.signals import Signals
from policy.terms import Terms

_NUM_SCORES = 6


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One change of plan, or of the reason for it.

    Attributes:
        at_s: When, on the clock of the signals, seconds.
        arm_from: What ran before.
        arm_to: What runs now.
        reason: Why.
        num_decoding: Requests that decode.
        num_waiting: Requests that wait.
        scores: What the best arms are worth, with their lower bounds.
        blocked: Better ones that were not taken, and why.
        realised: What a paired trial that ended now has measured.
        memory: How short memory is.
        release: What is given up for it.
        ledger_s: Time that probes may still lose, seconds.
        drifts: Where the step-time table is wrong.
        author: Who pinned the plan; None where nobody did.
    """

    at_s: float
    arm_from: Arm
    arm_to: Arm
    reason: Reason
    num_decoding: int
    num_waiting: int
    scores: tuple[Worth, ...]
    blocked: tuple[Blocked, ...]
    realised: Realised | None
    memory: MemoryLevel
    release: Release
    ledger_s: float
    drifts: tuple[Drift, ...]
    author: str | None


def entry_of(last: Decision, decision: Decision, signals: Signals) -> LogEntry | None:
    """Return what to log of a decision; None where neither arm, reason nor release changed."""
    state = decision.state
    is_same = (
        decision.plan.arm == last.plan.arm
        and decision.reason == last.reason
        and state.governor.release == last.state.governor.release
    )
    if is_same and decision.realised is None:
        return None
    return LogEntry(
        decision.at_s,
        last.plan.arm,
        decision.plan.arm,
        decision.reason,
        signals.num_decoding,
        signals.num_waiting,
        decision.scores[:_NUM_SCORES],
        decision.blocked,
        decision.realised,
        state.governor.level,
        state.governor.release,
        state.ledger.amount,
        state.corrections.drifts(),
        None if signals.pin is None else signals.pin.author,
    )


class DecisionLog:
    """The newest entries. Bounded, since a replica lives for months."""

    def __init__(self, most: int = 1000) -> None:
        if most < 1:
            raise PolicyError(f"policy.log_entries must be 1 or more, got {most}; try 1000")
        self._entries: deque[LogEntry] = deque(maxlen=most)

    def add(self, entry: LogEntry) -> None:
        """Keep an entry, and forget the oldest where there is no room."""
        self._entries.append(entry)

    def entries(self) -> tuple[LogEntry, ...]:
        """Return the entries, the oldest first."""
        return tuple(self._entries)

    def lines(self) -> Iterator[str]:
        """Yield the entries as lines of JSON."""
        return map(as_json, self.entries())


def replay(first: Decision, lines: Iterable[str], terms: Terms) -> Iterator[Decision]:
    """Yield the decisions that recorded signals led to, bit for bit.

    Args:
        first: The decision in force before the first line.
        lines: Signals, one line of JSON each.
        terms: Those they were decided under.
    """
    last = first
    for line in lines:
        last = decide(last, from_json(Signals, line), terms)
        yield last

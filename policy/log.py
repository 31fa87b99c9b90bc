"""The decisions worth keeping: what changed, why, and what was considered instead."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from policy.arms import Arm
from policy.correction import Drift
from policy.decision import Blocked, Decision, Realised
from policy.errors import PolicyError
from policy.goodput import Worth
from policy.governor import MemoryLevel, Release
from policy.header import FileKind, Header, header_from, line_as
from policy.json_form import as_json
from policy.reasons import Reason
from policy.signals import Signals

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
        scores: What the best arms, and those that the change is about, are worth, with their
            lower bounds; the best first.
        blocked: Better ones that were not taken, and why.
        realised: What a paired trial that ended now has measured.
        memory: How short memory is.
        release: What is given up for it.
        ledger_s: Time that probes may still lose, seconds.
        drifts: Where the step-time table is wrong.
        author: Who pinned the plan; None where nobody did.
        taking_over: What the new arm begins beside, since its drafter's context costs more than it
            would bring those that run; None where all change at once.
        acceptance_length: Tokens that a verify run of the arm brings, extra one included, as
            believed; None for plain.
        num_graded: Grades of the first draft token that this stands on, old ones faded.
        free_bytes: Device memory that is free; None where nobody knows.
        num_repeats: Decisions since the entry before that changed nothing.
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
    taking_over: Arm | None = None
    acceptance_length: float | None = None
    num_graded: float = 0.0
    free_bytes: int | None = None
    num_repeats: int = 0


def entry_of(last: Decision, decision: Decision, signals: Signals) -> LogEntry | None:
    """Return what to log of a decision; None where neither arms, reason nor release changed."""
    state = decision.state
    is_same = (
        decision.plan.arm == last.plan.arm
        and decision.plan.taking_over == last.plan.taking_over
        and decision.reason == last.reason
        and state.governor.release == last.state.governor.release
    )
    if is_same and decision.realised is None:
        return None
    return described(last, decision, signals)


def described(last: Decision, decision: Decision, signals: Signals) -> LogEntry:
    """Return what a log would say of a decision, whether or not it changed anything."""
    state, arm = decision.state, decision.plan.arm
    survival = state.survival_of(arm.drafter)
    outlook = survival.outlook(arm.draft_length)
    return LogEntry(
        decision.at_s,
        last.plan.arm,
        decision.plan.arm,
        decision.reason,
        signals.num_decoding,
        signals.num_waiting,
        _scores(last, decision),
        decision.blocked,
        decision.realised,
        state.governor.level,
        state.governor.release,
        state.ledger.amount,
        state.corrections.drifts(),
        None if signals.pin is None else signals.pin.author,
        decision.plan.taking_over,
        None if arm.is_plain else outlook.tokens(arm.draft_length),
        0.0 if arm.is_plain else survival.first_chance()[1],
        signals.reading.free_bytes,
    )


def _scores(last: Decision, decision: Decision) -> tuple[Worth, ...]:
    arms = {last.plan.arm, decision.plan.arm, *(each.arm for each in decision.blocked)}
    best = decision.scores[:_NUM_SCORES]
    return tuple(each for each in decision.scores if each in best or each.arm in arms)


class DecisionLog:
    """The newest entries. Bounded, since a replica lives for months."""

    def __init__(self, most: int = 1000) -> None:
        if most < 1:
            raise PolicyError(f"policy.log_entries must be 1 or more, got {most}; try 1000")
        self._entries: deque[tuple[int, LogEntry]] = deque(maxlen=most)
        self._num_added = 0

    def add(self, entry: LogEntry) -> None:
        """Keep an entry, and forget the oldest where there is no room."""
        self._num_added += 1
        self._entries.append((self._num_added, entry))

    def entries(self) -> tuple[LogEntry, ...]:
        """Return the entries, the oldest first."""
        return tuple(entry for _, entry in self.after(0))

    def after(self, number: int) -> tuple[tuple[int, LogEntry], ...]:
        """Return the entries that came after one, with their numbers, the oldest first.

        Args:
            number: Of the newest that is known; they are counted from 1, and 0 knows none.
        """
        # One copy: another thread may add meanwhile.
        return tuple(each for each in tuple(self._entries) if each[0] > number)

    def lines(self) -> Iterator[str]:
        """Yield the entries as lines of JSON."""
        return map(as_json, self.entries())


def entries_from(lines: Iterable[str]) -> tuple[Header, list[LogEntry]]:
    """Return what a decisions file holds.

    Args:
        lines: The lines of the file, header first.

    Raises:
        PolicyError: A line is not what this version writes; the message has its number.
    """
    numbered = enumerate(lines, start=1)
    _, first = next(numbered, (1, None))
    header = header_from(first, FileKind.DECISIONS)
    return header, [line_as(LogEntry, line, number) for number, line in numbered]

"""What a replica keeps of its decisions: the newest in memory, the rest in bounded files."""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from deployments.line_file import LineFile
from deployments.record_folder import forget_oldest
from policy.decision import Decision
from policy.header import VERSION, FileKind, Header
from policy.json_form import as_json
from policy.log import DecisionLog, LogEntry, entry_of
from policy.recording import Start, recorded
from policy.signals import Signals
from policy.terms import Terms

logger = logging.getLogger(__name__)

# Each keeps kilobytes of what it looked at; they are half a minute of a busy replica.
_NUM_MADE = 1000


@dataclass(frozen=True, slots=True)
class Made:
    """One decision with all that it came from.

    Attributes:
        last: The decision before it.
        signals: What it looked at.
        terms: What it was bound by.
        decision: The decision.
    """

    last: Decision
    signals: Signals
    terms: Terms
    decision: Decision


class DecisionRecord:
    """Notes decisions, from the thread that makes them, without ever holding it up."""

    def __init__(
        self,
        replica: str,
        folder: Path | None = None,
        keeps_signals: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to note.

        Args:
            replica: Whose decisions they are; part of the files' names.
            folder: Where the files go; None keeps the newest changes in memory alone.
            keeps_signals: Whether everything that decisions look at is kept, too, to make them
                again: kilobytes for each decision.
            clock: The clock of the signals, seconds.
        """
        self._log = DecisionLog()
        self._made: deque[Made] = deque(maxlen=_NUM_MADE)
        self._num_repeats = 0
        self._replica, self._offset_s = replica, time.time() - clock()
        self._files: list[LineFile[LogEntry] | LineFile[Made]] = []
        self._changes: LineFile[LogEntry] | None = None
        self._signals: LineFile[Made] | None = None
        self._num_failed = 0
        self._replica, self._folder = replica, folder
        if folder is None:
            return
        changes = _ChangeLines(self._header(FileKind.DECISIONS))
        self._changes = LineFile(folder / f"decisions-{replica}.jsonl", changes.text_of)
        self._files.append(self._changes)
        if keeps_signals:
            signals = _SignalLines(self._header(FileKind.SIGNALS))
            self._signals = LineFile(folder / f"signals-{replica}.jsonl", signals.text_of)
            self._files.append(self._signals)

    @property
    def num_lost(self) -> int:
        """Decisions that a file, or this record, could not keep."""
        return self._num_failed + sum(file.num_lost for file in self._files)

    def start(self) -> None:
        """Begin to write the files, in the place of those of replicas that are long gone."""
        if self._folder is not None:
            forget_oldest(self._folder, self._replica)
        for file in self._files:
            file.start()

    def stop(self) -> None:
        """Write what was noted and close the files."""
        for file in self._files:
            file.stop()

    @property
    def clock_offset_s(self) -> float:
        """Seconds since the epoch less the time of the decisions."""
        return self._offset_s

    @property
    def newest(self) -> Made | None:
        """The newest decision; None before the first."""
        return self._made[-1] if self._made else None

    @property
    def num_repeats(self) -> int:
        """Decisions since the newest change."""
        return self._num_repeats

    def entries(self) -> tuple[LogEntry, ...]:
        """Return the newest changes, the oldest first."""
        return self._log.entries()

    def changes_after(self, number: int) -> tuple[tuple[int, LogEntry], ...]:
        """Return the changes after one that is known, with their numbers, the oldest first."""
        return self._log.after(number)

    def signals_text(self, most: int) -> str:
        """Return what the newest decisions looked at, as a file for `dflashctl replay`.

        Args:
            most: So many decisions at most.
        """
        lines = _SignalLines(self._header(FileKind.SIGNALS))
        newest = tuple(self._made)[-most:]
        return "".join(lines.text_of(made, index == 0) for index, made in enumerate(newest))

    def _header(self, kind: FileKind) -> str:
        return Header(kind, VERSION, self._replica, self._offset_s).line()

    def note(self, made: Made) -> None:
        """Keep a decision. Returns at once and raises nothing."""
        try:
            entry = entry_of(made.last, made.decision, made.signals)
        # A step is worth more than what is told of it.
        except Exception as error:
            self._num_failed += 1
            logger.warning("a decision cannot be noted: %r", error, exc_info=True)
            return
        self._made.append(made)
        if self._signals is not None:
            self._signals.put(made)
        if entry is None:
            self._num_repeats += 1
            return
        entry, self._num_repeats = replace(entry, num_repeats=self._num_repeats), 0
        self._log.add(entry)
        if self._changes is not None:
            self._changes.put(entry)


class _ChangeLines:
    """Lines of a decisions file."""

    def __init__(self, header: str) -> None:
        self._header = header

    def text_of(self, entry: LogEntry, is_first: bool) -> str:
        return (self._header if is_first else "") + as_json(entry) + "\n"


class _SignalLines:
    """Lines of a signals file: a new start wherever the one before is not what was written last."""

    def __init__(self, header: str) -> None:
        self._header = header
        self._newest: Made | None = None

    def text_of(self, made: Made, is_first: bool) -> str:
        newest = self._newest
        is_next = newest is not None and newest.decision is made.last and newest.terms is made.terms
        self._newest = None
        header = self._header if is_first else ""
        start = "" if is_next and not is_first else as_json(Start(made.terms, made.last)) + "\n"
        text = header + start + as_json(recorded(made.signals, made.decision)) + "\n"
        self._newest = made
        return text

"""Changes of plan as text that is looked at first and read second."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from policy.arms import PLAIN, PLAIN_ARM, Arm
from policy.decision import Realised
from policy.goodput import Worth
from policy.governor import MemoryLevel
from policy.header import Header
from policy.log import LogEntry
from policy.reasons import Reason

_STRIP_COLUMNS = 60
_BAR_COLUMNS = 40
_MARKS = {MemoryLevel.GREEN: ".", MemoryLevel.AMBER: "a", MemoryLevel.RED: "R"}
_TRIALS = (Reason.PROBE, Reason.PROBE_ENDED)
_LEGEND = (
    "worth: plain decoding is 1 (|), = up to the lower bound, - from there to the mean\n"
    "memory: . green, a amber, R red; trials: ^ where one began"
)


def timeline(header: Header, entries: Sequence[LogEntry]) -> str:
    """Return a picture of the whole time, then every change with what it was weighed against.

    Args:
        header: Whose changes they are; tells the hour.
        entries: The changes, the oldest first.
    """
    if not entries:
        return f"replica {header.replica}: no change of plan yet\n"
    first, last = entries[0], entries[-1]
    span = f"{_day(first, header)} {_clock(first, header)} to {_clock(last, header)} UTC"
    count = "1 entry" if len(entries) == 1 else f"{len(entries)} entries"
    lines = [f"replica {header.replica}, {count}, {span}", ""]
    lines += [*_strips(entries), "", _LEGEND]
    for index, entry in enumerate(entries):
        lines += ["", *_block(entry, _measured_later(entries, index), header)]
        if index and _ends_takeover(entries[index - 1], entry):
            lines.append(f"    {entry.arm_to.drafter} has taken over: all decode alike")
    return "\n".join(lines) + "\n"


def _strips(entries: Sequence[LogEntry]) -> Iterator[str]:
    """Yield a row for each drafter, for trials and for memory: time runs to the right."""
    start_s = entries[0].at_s
    # The last entry stands for as long as a column, or nobody would see it.
    column_s = max(1e-3, entries[-1].at_s - start_s) / (_STRIP_COLUMNS - 1)
    columns: list[LogEntry] = []
    began: set[int] = set()
    ahead = list(entries)
    for column in range(_STRIP_COLUMNS):
        end_s = start_s + (column + 0.5) * column_s
        while len(ahead) > 1 and ahead[1].at_s <= end_s:
            ahead.pop(0)
        columns.append(ahead[0])
    for entry in entries:
        if entry.reason is Reason.PROBE:
            began.add(round((entry.at_s - start_s) / column_s))
    names = {PLAIN: None} | {arm.drafter: None for each in entries for arm in _arms(each)}
    for name in [*(name for name in names if name != PLAIN), PLAIN]:
        yield _row(name, ["#" if each.arm_to.drafter == name else "." for each in columns])
    yield _row("trials", ["^" if column in began else "." for column in range(_STRIP_COLUMNS)])
    yield _row("memory", [_MARKS[each.memory] for each in columns])


def _row(name: str, marks: list[str]) -> str:
    return f"{name:<12}{''.join(marks)}"


def _arms(entry: LogEntry) -> list[Arm]:
    return [entry.arm_from, entry.arm_to, *(worth.arm for worth in entry.scores)]


def _block(entry: LogEntry, later: Realised | None, header: Header) -> Iterator[str]:
    is_kept = entry.arm_from == entry.arm_to
    change = entry.arm_to.name if is_kept else f"{entry.arm_from.name} -> {entry.arm_to.name}"
    load = f"{entry.num_decoding} decoding, {entry.num_waiting} waiting"
    yield f"{_clock(entry, header)}  {change}  {entry.reason}  ({load})"
    if entry.reason not in _TRIALS:
        yield from _worths(entry)
    if entry.taking_over is not None:
        yield f"    begins with newcomers; the others go on with {entry.taking_over.name}"
    if entry.realised is not None:
        yield f"    measured: {_gain(entry.realised)}{_believed(entry.realised, entry.scores)}"
    elif later is not None:
        yield f"    measured later: {_gain(later)}"
    if entry.memory is not MemoryLevel.GREEN or entry.release:
        given_up = entry.release.name.lower().replace("_", " ")
        yield f"    memory {entry.memory}, given up: {given_up}"
    if entry.author is not None:
        yield f"    pinned by {entry.author}"
    for drift in entry.drifts:
        where = drift.where or "every step"
        yield f"    step times off at {where}: {drift.ratio:.2f} times the table's"
    yield f"    trials may still lose {entry.ledger_s * 1e3:.0f} ms"


def _ends_takeover(before: LogEntry, entry: LogEntry) -> bool:
    """Return whether nobody goes on with another drafter any more; a trial only interrupts."""
    is_same = before.arm_to.drafter == entry.arm_to.drafter
    return is_same and before.taking_over is not None and entry.taking_over is None


def _worths(entry: LogEntry) -> Iterator[str]:
    """Yield a bar for each arm that was considered, and what kept a better one back."""
    kept_back = {blocked.arm: blocked.reason for blocked in entry.blocked}
    scale = _BAR_COLUMNS / max([1.5, *(worth.value for worth in entry.scores)])
    for worth in entry.scores:
        note = "  runs" if worth.arm == entry.arm_to else ""
        if worth.arm in kept_back:
            note = f"  kept back: {kept_back.pop(worth.arm)}"
        bounds = f"{worth.value:5.2f} (at least {worth.lower:.2f})"
        yield f"    {worth.arm.name:<12}{_bar(worth, scale)} {bounds}{note}"
    for arm, reason in kept_back.items():
        yield f"    {arm.name:<12}{'':<{_BAR_COLUMNS}} kept back: {reason}"


def _bar(worth: Worth, scale: float) -> str:
    sure = round(max(0.0, worth.lower) * scale)
    bar = list(f"{'=' * sure:-<{round(worth.value * scale)}}"[:_BAR_COLUMNS].ljust(_BAR_COLUMNS))
    bar[round(scale) - 1] = "|"
    return "".join(bar)


def _gain(realised: Realised) -> str:
    return f"{realised.arm.name} is {realised.gain:.2f} times as fast as {realised.over.name}"


def _believed(realised: Realised, scores: Sequence[Worth]) -> str:
    values = {PLAIN_ARM: 1.0} | {worth.arm: worth.value for worth in scores}
    if realised.arm not in values or realised.over not in values:
        return ""
    return f" (believed {values[realised.arm] / values[realised.over]:.2f})"


def _measured_later(entries: Sequence[LogEntry], index: int) -> Realised | None:
    """Return what a trial has measured of a change, before the drafter changed again."""
    arm = entries[index].arm_to
    if arm == entries[index].arm_from or entries[index].reason in _TRIALS:
        return None
    for entry in entries[index + 1 :]:
        if entry.realised is not None and entry.realised.arm.drafter == arm.drafter:
            return entry.realised
        if entry.arm_to.drafter != arm.drafter and entry.reason is not Reason.PROBE:
            return None
    return None


def _moment(entry: LogEntry, header: Header) -> datetime:
    return datetime.fromtimestamp(entry.at_s + header.clock_offset_s, UTC)


def _day(entry: LogEntry, header: Header) -> str:
    return _moment(entry, header).strftime("%Y-%m-%d")


def _clock(entry: LogEntry, header: Header) -> str:
    return _moment(entry, header).strftime("%H:%M:%S.%f")[:-3]

"""The status page as text: the same words, in the columns of a terminal."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from deployments.operators.ages import age_words
from policy.reasons import Reason

_BLOCKS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_TRIALS = (Reason.PROBE, Reason.PROBE_ENDED)
_MOST_DECISIONS = 12
_GIB = 1 << 30
_COLUMNS = ("Replica", "Runs", "Why", "Load", "Acceptance", "Gain", "Latency", "Memory", "Pin")


def status_text(
    policy: Mapping[str, Any], decisions: Sequence[Mapping[str, Any]]
) -> RenderableType:
    """Return what the status page shows.

    Args:
        policy: The answer of `GET /policy`.
        decisions: Those of `GET /policy/decisions`, the newest first.
    """
    parts: list[RenderableType] = [_top_line(policy)]
    parts += [Text(f"  ! {alarm}", style="red") for alarm in policy["alarms"]]
    if policy["replicas"]:
        parts += [Text(), _table(policy["replicas"], _epoch_s(policy["at"]))]
    kept = [each for each in decisions if each["reason"] not in _TRIALS]
    if kept:
        parts += [Text(), Text("Decisions, newest first, without trials", style="bold")]
        parts += [_line(*each) for each in list(folded(kept))[:_MOST_DECISIONS]]
    return Group(*parts)


def folded(decisions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield decisions, the newest first, each with what it stood for; repeats are one.

    Args:
        decisions: The newest first.
    """
    rows: list[tuple[Mapping[str, Any], int]] = []
    last: dict[str, int] = {}
    for each in decisions:
        index = last.get(each["replica"])
        if index is not None and _kind(rows[index][0]) == _kind(each):
            rows[index] = (rows[index][0], rows[index][1] + each["repeats"])
            continue
        last[each["replica"]] = len(rows)
        rows.append((each, each["repeats"]))
    yield from rows


def _kind(decision: Mapping[str, Any]) -> tuple[Any, ...]:
    return decision["reason"], decision["from"], decision["to"]


def _top_line(policy: Mapping[str, Any]) -> Text:
    if policy["is_well"]:
        sign, style = "well", "green"
    else:
        sign, style = ("LOOK", "red") if policy["alarms"] else ("draining", "yellow")
    return Text.assemble((f"[{sign}] ", f"bold {style}"), (policy["summary"], "bold"))


def _table(rows: Sequence[Mapping[str, Any]], now_s: float) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 1, 0))
    for name in _COLUMNS:
        table.add_column(name, vertical="top", overflow="fold")
    for row in rows:
        cells = (
            _replica(row),
            _plan(row),
            "\n".join(filter(None, (row["reason"], row["sentence"]))),
            _load(row),
            "\n".join(_acceptance(row)),
            _gain(row),
            _latency(row),
            _memory(row),
            _pin(row, now_s),
        )
        table.add_row(*map(Text, cells), style="dim" if row["is_stale"] else "")
    return table


def _replica(row: Mapping[str, Any]) -> str:
    age = age_words(row["age_s"])
    return f"{row['replica']}\n" + (f"silent for {age}" if row["is_stale"] else f"{age} ago")


def _plan(row: Mapping[str, Any]) -> str:
    lines = [
        row["plan"],
        "fixed" if row["since_s"] is None else f"since {age_words(row['since_s'])}",
    ]
    if row["trial"]:
        lines.append(f"trying {row['trial']}")
    return "\n".join(lines)


def _load(row: Mapping[str, Any]) -> str:
    decoding = row["num_running"] if row["num_decoding"] is None else row["num_decoding"]
    return f"{decoding} decode\n{row['num_waiting']} wait"


def _acceptance(row: Mapping[str, Any]) -> Iterator[str]:
    if not row["acceptance"]:
        yield "no drafter"
    for each in sorted(row["acceptance"], key=lambda each: not each["is_running"]):
        graded = each["num_graded"]
        if each["is_enough"]:
            found = f"{each['length']:.2f} of {each['draft_len'] + 1} ({graded})"
        else:
            found = f"too few ({graded})" if graded else "not measured yet"
        if each["is_running"]:
            yield f"{found} {_bars(each['by_place'])}"
        else:
            yield f"{each['drafter']}, idle: {found}"


def _bars(shares: Iterable[float]) -> str:
    return "".join(_BLOCKS[round(share * (len(_BLOCKS) - 1))] for share in shares)


def _gain(row: Mapping[str, Any]) -> str:
    gain = row["gain"]
    if gain is None:
        return "not measured"
    expected = "-" if gain["expected"] is None else f"{gain['expected']:.2f}x"
    if gain["realised"] is None:
        return f"no trial yet\nexpected {expected}"
    measured = f"{gain['realised_plan']} {gain['realised']:.2f}x {gain['realised_over']}"
    return f"{measured}, {age_words(gain['realised_age_s'])} ago\nexpected {expected}"


def _latency(row: Mapping[str, Any]) -> str:
    latency = row["latency"]
    if latency is None or not latency["num_requests"]:
        return "no request ended"
    tpot = f"{_time(latency['tpot_p50_s'])} / {_time(latency['tpot_p95_s'])}"
    return f"TPOT {tpot}\nTTFT {_time(latency['ttft_p95_s'])}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds >= 1.0 else f"{seconds * 1e3:.1f} ms"


def _memory(row: Mapping[str, Any]) -> str:
    memory = row["memory"]
    if memory is None:
        return "not known"
    free, total = memory["parts"]["headroom"], memory["total_bytes"]
    lines = [f"{free / _GIB:.2f} of {total / _GIB:.1f} GiB free"]
    if memory["floor_bytes"] is not None:
        lines.append(f"floor {memory['floor_bytes'] / _GIB:.2f} GiB")
    if row["memory_level"] not in (None, "green"):
        lines.append(f"{row['memory_level']}; given up: {row['given_up'].replace('_', ' ')}")
    return "\n".join(lines)


def _pin(row: Mapping[str, Any], now_s: float) -> str:
    pin = row["pin"]
    if pin is None:
        return "none"
    left = age_words(_epoch_s(pin["expires"]) - now_s)
    return f"{pin['plan']}, {left} left\nby {pin['author']}: {pin['why']}"


def _line(decision: Mapping[str, Any], count: int) -> Text:
    before, after = _named(decision["from"]), _named(decision["to"])
    change = after if before == after else f"{before} -> {after}"
    repeats = f"  ({count}x)" if count > 1 else ""
    head = f"{decision['at'][11:19]}  {decision['replica']:<10} {change:<24} "
    return Text.assemble(head, (decision["reason"], "bold"), f"  {decision['sentence']}{repeats}")


def _named(plan: Mapping[str, Any]) -> str:
    return f"{plan['mode']}:{plan['draft_len']}" if plan["draft_len"] else plan["mode"]


def _epoch_s(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()

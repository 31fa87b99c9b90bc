"""`GET /policy`: all replicas as one ingress last heard of them, and the top line in words."""

from collections.abc import Sequence
from typing import Any

from deployments.operators.ages import age_words, iso_time
from deployments.operators.board import Heard
from deployments.operators.replica_row import pin_body, row_of
from deployments.watch import EngineWatch
from policy.arms import PLAIN


def policy_body(watch: EngineWatch, model_name: str) -> dict[str, Any]:
    """Return the snapshot; asks no replica.

    Args:
        watch: Knows the replicas.
        model_name: What is served.
    """
    board = watch.board
    speculation = None if watch.model is None else watch.model.card.speculation
    rows = [row_of(heard, speculation) for heard in board.heard()]
    pins = [pin_body(pin) for pin in board.orders.live_pins(board.now_s)]
    alarms = [f"{row['replica']}: {alarm}" for row in rows for alarm in row["alarms"]]
    if (why := watch.why_not_ready()) is not None and not alarms:
        alarms = [why]
    is_draining = board.orders.drain.is_on
    return {
        "at": iso_time(board.now_s),
        "model": model_name,
        "is_well": not alarms and not is_draining,
        "summary": summary_of(rows, len(pins), alarms, is_draining=is_draining),
        "alarms": alarms,
        "is_draining": is_draining,
        "plans": plans_of(board.heard()),
        "pins": pins,
        "replicas": rows,
    }


def plans_of(heard: Sequence[Heard]) -> list[str]:
    """Return what can be pinned on one replica or another, plain decoding first."""
    reports = [each.status.report for each in heard]
    plans = [report.desk.arms for report in reports if report is not None and report.desk]
    return list(dict.fromkeys(plan for arms in plans for plan in arms))


def summary_of(
    rows: Sequence[dict[str, Any]], num_pins: int, alarms: Sequence[str], *, is_draining: bool
) -> str:
    """Return the top line."""
    sentences = ["Draining: new work is refused."] if is_draining else []
    sentences.append(_who_speculates(rows))
    if (gain := _gain(rows)) is not None:
        sentences.append(gain)
    if num_pins:
        sentences.append("1 pin holds." if num_pins == 1 else f"{num_pins} pins hold.")
    count = "1 alarm" if len(alarms) == 1 else f"{len(alarms)} alarms"
    sentences.append(f"{count}." if alarms else "No alarms.")
    return " ".join(sentences)


def _who_speculates(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "No replica has reported yet."
    num = sum(row["mode"] != PLAIN and not row["is_stale"] for row in rows)
    if len(rows) == 1:
        return "The replica speculates." if num else "The replica decodes plainly."
    return f"{num} of {len(rows)} replicas speculate."


def _gain(rows: Sequence[dict[str, Any]]) -> str | None:
    """Return what trials have measured lately against plain decoding, over all replicas."""
    speculating = [row for row in rows if row["mode"] != PLAIN and not row["is_stale"]]
    if not speculating:
        return None
    measured = [row["gain"] for row in speculating if row["gain"] and _is_of(row)]
    if not measured:
        return "What it gains is not measured yet."
    mean = sum(gain["realised"] for gain in measured) / len(measured)
    age = age_words(min(gain["realised_age_s"] for gain in measured))
    return f"Output {mean:.1f}x plain, measured by a trial {age} ago."


def _is_of(row: dict[str, Any]) -> bool:
    """Return whether what was measured is of the drafter that runs, against plain decoding."""
    gain = row["gain"]
    if gain["realised_over"] != PLAIN:
        return False
    return gain["realised_plan"].partition(":")[0] == row["mode"]

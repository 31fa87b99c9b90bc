"""One replica as a row of `GET /policy`."""

from typing import Any

from deployments.operators.ages import age_words, iso_time
from deployments.operators.board import Heard
from deployments.operators.orders import StandingPin
from deployments.operators.report import Acceptance, DeskReport, MemoryReport
from deployments.operators.words import WORDS, sentence_of
from dflash.config import AUTO_LENGTH
from dflash.speculation_report import SpeculationReport
from policy.arms import PLAIN
from policy.governor import MemoryLevel
from policy.reasons import Reason

# Fewer first draft tokens than these say nothing yet.
MIN_GRADED = 32.0
_FIXED = (
    "The plan is fixed by engine.speculation.draft_length; no policy decides. Set it to auto to "
    "change that."
)
_ALARMING = (Reason.DRAFTER_UNHEALTHY, Reason.DRAFTER_UNAVAILABLE)
# A machine without such a device has nothing to be read.
_NO_TROUBLE = (None, "absent")


def row_of(heard: Heard, speculation: SpeculationReport | None) -> dict[str, Any]:
    """Return the row of a replica.

    Args:
        heard: What it last said.
        speculation: What is loaded; None before it is known.
    """
    status = heard.status
    report = status.report
    desk = report and report.desk
    return {
        "replica": status.replica,
        "age_s": round(heard.age_s, 1),
        "is_stale": heard.is_stale,
        "is_healthy": status.is_healthy,
        "condition": status.sentence,
        "num_running": status.num_running,
        "num_waiting": status.num_waiting,
        **(_fixed_plan(speculation) if desk is None else _plan(desk)),
        "latency": report
        and {
            "window_s": 60,
            "num_requests": report.latency.num_requests,
            "ttft_p50_s": report.latency.ttft_p50_s,
            "ttft_p95_s": report.latency.ttft_p95_s,
            "tpot_p50_s": report.latency.tpot_p50_s,
            "tpot_p95_s": report.latency.tpot_p95_s,
        },
        "memory": report and report.memory and memory_body(report.memory, desk),
        "memory_level": status.policy and status.policy.memory,
        "given_up": status.policy and status.policy.release,
        "alarms": alarms_of(heard),
    }


def alarms_of(heard: Heard) -> list[str]:
    """Return what somebody should look at, each as a sentence without its end."""
    status, policy = heard.status, heard.status.policy
    if heard.is_stale:
        return [f"silent for {age_words(heard.age_s)}; what follows may be out of date"]
    found = [] if status.is_healthy else [status.sentence]
    if status.user_config_problem is not None:
        found.append(f"user_config: {status.user_config_problem}")
    if policy is None:
        return found
    if policy.num_errors:
        found.append(f"decisions failed: {policy.num_errors}, the last with {policy.last_error}")
    if policy.memory == MemoryLevel.RED:
        given_up = policy.release.replace("_", " ")
        found.append(f"memory is short; given up: {given_up}")
    if policy.memory_trouble not in _NO_TROUBLE:
        found.append(f"the device does not say how much memory is free ({policy.memory_trouble})")
    return found + _drafter_alarms(heard)


def _drafter_alarms(heard: Heard) -> list[str]:
    report = heard.status.report
    desk = report and report.desk
    if desk is None or desk.newest is None:
        return []
    reasons = {desk.newest.reason, *(each.reason for each in desk.newest.blocked)}
    return [WORDS[reason].meaning.rstrip(".") for reason in _ALARMING if reason in reasons]


def pin_body(pin: StandingPin) -> dict[str, Any]:
    """Return a pin; ``id`` is null for one of a `user_config`, which only a deploy takes back."""
    return {
        "id": pin.pin_id or None,
        "plan": pin.arm,
        "replicas": list(pin.replicas),
        "author": pin.author,
        "why": pin.why,
        "expires": iso_time(pin.expires_at_s),
        "release_drafter": pin.release_drafter,
    }


def memory_body(memory: MemoryReport, desk: DeskReport | None) -> dict[str, Any]:
    """Return where the memory is; the floor is what must stay free, or nothing is drafted."""
    floor = None if desk is None else int(desk.floor_fraction * memory.total_bytes)
    return {
        "total_bytes": memory.total_bytes,
        "parts": dict(memory.parts),
        "floor_bytes": floor,
        "resident_bytes": memory.resident_bytes,
        "trouble": memory.trouble,
    }


def mode_body(arm: str) -> dict[str, Any]:
    """Return an arm such as ``mtp:2`` in its parts."""
    mode, _, length = arm.partition(":")
    return {"mode": mode, "draft_len": int(length or 0)}


def _plan(desk: DeskReport) -> dict[str, Any]:
    newest = desk.newest
    reason = Reason.STARTING if newest is None else newest.reason
    running = desk.home if newest is None else newest.arm_to.name
    realised = desk.realised
    return {
        **mode_body(desk.home),
        "plan": desk.home,
        "since_s": round(desk.since_s, 1),
        "trial": None if running == desk.home else running,
        "reason": str(reason),
        "meaning": WORDS[reason].meaning,
        "sentence": WORDS[reason].meaning if newest is None else sentence_of(newest),
        "num_decoding": 0 if newest is None else newest.num_decoding,
        "acceptance": [_acceptance(each, desk.home) for each in desk.acceptances],
        "gain": {
            "expected": desk.expected_gain,
            "realised": realised and realised.gain,
            "realised_plan": realised and realised.arm.name,
            "realised_over": realised and realised.over.name,
            "realised_age_s": realised and round(desk.realised_age_s, 1),
        },
        "pin": desk.pin and pin_body(desk.pin),
    }


def _fixed_plan(speculation: SpeculationReport | None) -> dict[str, Any]:
    plan = PLAIN
    if speculation is not None and speculation.draft_length not in (0, AUTO_LENGTH):
        plan = f"{speculation.drafter}:{speculation.draft_length}"
    return {
        **mode_body(plan),
        "plan": plan,
        "since_s": None,
        "trial": None,
        "reason": None,
        "meaning": _FIXED,
        "sentence": _FIXED,
        "num_decoding": None,
        "acceptance": [],
        "gain": None,
        "pin": None,
    }


def _acceptance(acceptance: Acceptance, home: str) -> dict[str, Any]:
    """Return a drafter's acceptance at the length in force, or at its longest where it is idle.

    No place counts of which nothing was graded: nobody knows what it would bring.
    """
    mode = mode_body(home)
    is_running = mode["mode"] == acceptance.drafter
    longest = mode["draft_len"] if is_running else acceptance.draft_lengths[-1]
    length = min(longest, len(acceptance.by_place))
    return {
        "drafter": acceptance.drafter,
        "is_running": is_running,
        "draft_len": length,
        "length": round(acceptance.length(length), 3),
        "num_graded": round(acceptance.num_graded),
        "is_enough": acceptance.num_graded >= MIN_GRADED,
        "by_place": [round(share, 4) for share in acceptance.by_place],
    }

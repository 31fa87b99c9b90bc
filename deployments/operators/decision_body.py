"""`GET /policy/decisions`: changes of plan as data, and the cursor that asks for later ones."""

from collections.abc import Mapping
from typing import Any

from deployments.operators.ages import iso_time
from deployments.operators.decision_ring import Told
from deployments.operators.replica_row import mode_body
from deployments.operators.words import gain_of, sentence_of

# A cursor names every replica of which anything is known.
MOST_CURSOR_CHARACTERS = 8192


def decision_body(told: Told) -> dict[str, Any]:
    """Return one change."""
    noted, entry = told.noted, told.noted.entry
    return {
        "id": f"{noted.replica}/{noted.number}",
        "at": iso_time(noted.at_s),
        "replica": noted.replica,
        "from": mode_body(entry.arm_from.name),
        "to": mode_body(entry.arm_to.name),
        "reason": str(entry.reason),
        "sentence": sentence_of(entry),
        "repeats": told.num_repeats,
        "author": entry.author,
        "inputs": {
            "num_decoding": entry.num_decoding,
            "num_waiting": entry.num_waiting,
            "acceptance_length": entry.acceptance_length and round(entry.acceptance_length, 3),
            "samples": round(entry.num_graded),
            "memory": str(entry.memory),
            "free_bytes": entry.free_bytes,
        },
        "considered": [
            {
                **mode_body(worth.arm.name),
                "gain": round(worth.value, 4),
                "gain_at_least": round(worth.lower, 4),
            }
            for worth in entry.scores
        ],
        "blocked": [
            {**mode_body(blocked.arm.name), "guard": str(blocked.reason)}
            for blocked in entry.blocked
        ],
        "expected_gain": _rounded(gain_of(entry)),
        "realised_gain": _rounded(told.realised and told.realised.gain),
        "realised_over": told.realised and told.realised.over.name,
        "realised_after_s": round(told.realised_after_s, 1) if told.realised else None,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def cursor_of(known: Mapping[str, int]) -> str:
    """Return what asks for later changes than these; it means the same on every ingress."""
    return ",".join(f"{replica}:{number}" for replica, number in sorted(known.items()))


def known_from(cursor: str) -> Mapping[str, int]:
    """Return what a cursor stands for.

    Raises:
        ValueError: It is none.
    """
    known: dict[str, int] = {}
    for part in filter(None, cursor.split(",")):
        replica, _, number = part.rpartition(":")
        if not replica or not number.isdecimal() or len(number) > 18:
            raise ValueError(f"{part[:60]!r} is no replica and number")
        known[replica] = int(number)
    return known

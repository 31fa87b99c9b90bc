"""What was decided, and everything that explains it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from policy.arms import PLAIN_ARM, Arm
from policy.goodput import Worth
from policy.reasons import Reason
from policy.state import State, first_state
from policy.terms import Terms


class Residency(StrEnum):
    """What is kept of a drafter.

    ``warm``: its context follows the requests. ``cold``: its context is left alone.
    ``no_context``: its context's pages are given back. ``no_weights``: its weights are, too.
    """

    WARM = "warm"
    COLD = "cold"
    NO_CONTEXT = "no_context"
    NO_WEIGHTS = "no_weights"


@dataclass(frozen=True, slots=True)
class Plan:
    """How to decode until the next decision.

    Attributes:
        arm: Drafter and draft length.
        by_request: Draft lengths of requests that differ, by id.
        num_drafting: Most requests that draft, while the others decode plainly; None for all.
        taking_over: What the arm's drafter takes over from, request by request: it begins with
            those that come, and those that it does not follow go on with this arm to their ends.
            None where all change at once, or have.
        num_graded: Requests whose whole block is drafted, to grade the places beyond the arm's.
        residency: What is kept of each drafter.
    """

    arm: Arm = PLAIN_ARM
    by_request: Mapping[str, int] = field(default_factory=dict)
    num_drafting: int | None = None
    taking_over: Arm | None = None
    num_graded: int = 0
    residency: Mapping[str, Residency] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Blocked:
    """An arm that looked better and was not taken.

    Attributes:
        arm: The arm.
        reason: What kept it back.
    """

    arm: Arm
    reason: Reason


@dataclass(frozen=True, slots=True)
class Realised:
    """What a change has brought, measured by running both within a second.

    Attributes:
        arm: What is in force.
        over: What it was compared with.
        gain: How many times faster it emitted tokens.
    """

    arm: Arm
    over: Arm
    gain: float


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan with its cause, and what the next decision starts from.

    Attributes:
        at_s: When it was made, seconds.
        plan: How to decode.
        reason: Why this arm, or why no other.
        scores: What every arm was worth, the best first.
        blocked: Better ones that were not taken.
        realised: What a paired trial found that ended now.
        state: What was learnt.
    """

    at_s: float
    plan: Plan = field(default_factory=Plan)
    reason: Reason = Reason.STARTING
    scores: tuple[Worth, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    realised: Realised | None = None
    state: State = field(default_factory=State)


def first_decision(terms: Terms, now_s: float) -> Decision:
    """Return the decision before the first step: plain, until something was measured."""
    return Decision(now_s, state=first_state(terms, now_s))

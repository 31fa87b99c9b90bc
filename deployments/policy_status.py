"""What the policy does now, for people: its arm, its reason, and what it would take to change."""

from collections.abc import Mapping
from dataclasses import dataclass

from policy.correction import Drift


@dataclass(frozen=True, slots=True)
class PolicyStatus:
    """The policy of one replica.

    Attributes:
        arm: What runs, such as ``dflash2:7``.
        taking_over: What those go on with that the arm's drafter does not follow, while it begins
            with newcomers; None where all decode alike.
        reason: Why, or what keeps a better one back.
        break_even: Most requests at which each drafter pays, by what is known now.
        unmeasured: Drafters none of whose drafts was graded yet: their break-even is what an
            untried drafter is believed to do.
        max_concurrency: The operator's own limits, beside it.
        memory: How short memory is.
        release: What is given up for it, such as ``drafting`` or ``weights``.
        memory_trouble: Why the device does not say how much it has; None where it does.
        is_throttled: The device runs below the clock that step times were measured at.
        drifts: Where the table of step times is wrong, the worst first.
        pinned_by: Whose pin is in force; None where the law decides.
        num_errors: Decisions that failed; the plan before them stayed.
        last_error: What the last of them raised.
    """

    arm: str
    taking_over: str | None
    reason: str
    break_even: Mapping[str, int]
    unmeasured: tuple[str, ...]
    max_concurrency: Mapping[str, int]
    memory: str
    release: str
    memory_trouble: str | None
    is_throttled: bool
    drifts: tuple[Drift, ...]
    pinned_by: str | None
    num_errors: int
    last_error: str | None

"""Step times that nobody measured: a device bound by weights, then by tokens."""

from deployments.step_times import StepTimes, times_from
from dflash.profile import LONG_CONTEXT, SHORT_CONTEXT, Profile, StepTime
from policy.arms import PLAIN, Ladder, Rungs

LADDER = Ladder((Rungs("dflash2", (1, 3, 5, 7)), Rungs("mtp", (1, 2, 3))))
_ROWS = (1, 2, 4, 8, 16)
_DRAFTING_S = {"mtp": 0.001}
_BLOCK_S = 0.002


def step_s(drafter: str, draft_length: int, rows: int) -> float:
    """Return the seconds of a step."""
    drafting = _DRAFTING_S.get(drafter, _BLOCK_S) * (draft_length > 0)
    return 0.01 + drafting + 0.0001 * rows + 0.0005 * max(0, rows * (draft_length + 1) - 32)


def measured(ladder: Ladder = LADDER) -> Profile:
    """Return what measuring them would find."""
    arms = [(PLAIN, 0)]
    for rungs in ladder.drafters:
        arms += [(rungs.drafter, length) for length in (0, *rungs.draft_lengths)]
    times = [
        StepTime(name, length, rows, SHORT_CONTEXT, step_s(name, length, rows))
        for rows in _ROWS
        for name, length in arms
    ]
    times += [
        StepTime(name, length, 4, LONG_CONTEXT, 2.0 * step_s(name, length, 4))
        for name, length in arms
    ]
    return Profile(tuple(times), prefill_s=0.0001)


def step_times(ladder: Ladder = LADDER) -> StepTimes:
    """Return them as the policy reads them."""
    return times_from(measured(ladder), ladder)

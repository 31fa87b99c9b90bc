"""A drafter that takes over from another at once, or request by request."""

from policy.arms import PLAIN_ARM, Arm
from policy.goodput import Worth
from policy.signals import Signals
from policy.state import State
from policy.view import View

# How long a change is expected to last when its price is weighed, seconds.
_HORIZON_S = 10.0
# What taking over request by request must promise: until the last of the old ones has ended, two
# drafters are asked in a step, or one for a few rows.
_GAIN = 1.05
# An old request that never ends keeps nothing else from being tried for longer, seconds.
_LONGEST_S = 60.0


def pays_at_once(worth: Worth, other: float, signals: Signals) -> bool:
    """Return whether a drafter saves, for as long as a change may last, what its context lacks.

    Args:
        worth: Of its best arm.
        other: What is left is worth that; where that is below plain, plain decoding is left.
        signals: Has what each drafter lacks.
    """
    catch_up_s = signals.condition_of(worth.arm.drafter).catch_up_s
    return catch_up_s <= (1.0 - max(1.0, other) / worth.value) * _HORIZON_S


def pays(worth: Worth, other: float, signals: Signals) -> bool:
    """Return whether a drafter may take over, at once or request by request."""
    return pays_at_once(worth, other, signals) or worth.value >= _GAIN * max(1.0, other)


def left_by(view: View) -> Arm:
    """Return how requests go on that the next drafter does not follow: never below plain."""
    return _still_good(view.held, view)


def leaving(state: State, view: View, signals: Signals) -> Arm | None:
    """Return what the drafter in force still takes over from; None once it follows whom it should.

    The last few are caught up with as soon as that pays, and all where an operator pinned it: a pin
    is for everybody.
    """
    before, pin, drafter = state.leaving, signals.pin, view.held.drafter
    is_pinned = pin is not None and pin.arm.drafter == drafter
    lacks_nobody = signals.condition_of(drafter).catch_up_s == 0.0
    if before is None or is_pinned or lacks_nobody:
        return None
    other = view.worths[before].value
    return None if pays_at_once(view.current, other, signals) else _still_good(before, view)


def is_under_way(state: State, now_s: float) -> bool:
    """Return whether a drafter takes over, and not for too long already."""
    is_long = state.changed_s is None or now_s - state.changed_s > _LONGEST_S
    return state.leaving is not None and not is_long


def _still_good(arm: Arm, view: View) -> Arm:
    """Return an arm, or where that is not allowed or below plain the best of its drafter."""
    if view.is_allowed(arm) and view.worths[arm].value >= 1.0:
        return arm
    best = view.peak(arm.drafter)
    return PLAIN_ARM if best is None or best.value < 1.0 else best.arm

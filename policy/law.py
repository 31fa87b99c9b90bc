"""The law: which arm to run next, and what kept a better one from it."""

from collections.abc import Iterator
from dataclasses import dataclass

from policy.arms import Arm
from policy.decision import Blocked
from policy.goodput import Worth
from policy.reasons import Reason
from policy.signals import Signals
from policy.state import State
from policy.takeover import pays, pays_at_once
from policy.terms import Terms
from policy.view import View

# What a change must promise. Towards shorter steps the mean decides, and soon; towards longer ones
# the lower bound, and twice: being wrong costs most there.
_LIGHTER_GAIN = 1.01
_HEAVIER_GAIN = 1.04
_LEAVE_PLAIN_GAIN = 1.03
_NARROWER_GAIN = 1.005
_WIDER_GAIN = 1.01
# At few requests a wide draft is nearly free, and one trimmed for a guess would lose to it.
_LOW_LOAD_ROWS = 4
_LOW_LOAD_GAIN = 1.01
# A device below its clock makes every time measured before doubtful.
_THROTTLED_MARGIN = 2.0
# So many more requests than at the last decision that lighter steps cannot wait for the dwell.
_SPIKE_FACTOR, _SPIKE_ROWS = 1.5, 4


@dataclass(frozen=True, slots=True)
class Choice:
    """What the law says.

    Attributes:
        arm: What to run.
        reason: Why; where nothing changes, what kept the best other one back.
        blocked: Better ones that were not taken.
        confirming: A drafter that won for the first time.
        is_takeover: Whether the drafter begins with the requests that come, and the others go on
            with what runs: its context costs more than it would bring them.
    """

    arm: Arm
    reason: Reason
    blocked: tuple[Blocked, ...] = ()
    confirming: str | None = None
    is_takeover: bool = False


def choose(view: View, state: State, signals: Signals, terms: Terms) -> Choice:
    """Return what to run: what a guard leaves, then a lighter drafter, a heavier one, a width."""
    held = view.held
    if not view.is_allowed(held):
        return _fallback(view, signals)
    if signals.num_rows == 0:
        return Choice(held, Reason.IDLE)
    is_throttled = signals.reading.is_throttled
    blocked = list(_forbidden(view, is_throttled))
    is_dwelling = state.is_dwelling(terms.limits, signals.now_s)
    lighter = _lighter(view, signals)
    spiked = is_spike(state, signals)
    if lighter is not None:
        if spiked or not is_dwelling:
            is_takeover = not pays_at_once(lighter, view.current.value, signals)
            why = _why_lighter(view, spiked)
            return Choice(lighter.arm, why, tuple(blocked), is_takeover=is_takeover)
        blocked.append(Blocked(lighter.arm, Reason.DWELL))
    heavier = _heavier(view, is_throttled)
    if heavier is not None:
        objection = _objection(heavier, view, state, signals, terms)
        if objection is None:
            is_takeover = not pays_at_once(heavier, view.current.value, signals)
            return Choice(heavier.arm, Reason.FASTER, tuple(blocked), is_takeover=is_takeover)
        blocked.append(Blocked(heavier.arm, objection))
    confirming = None if heavier is None else heavier.arm.drafter
    arm, reason = _width(view)
    if arm == held and blocked:
        reason = blocked[0].reason
    return Choice(arm, reason, tuple(blocked), confirming)


def is_spike(state: State, signals: Signals) -> bool:
    """Return whether so many requests came at once that a change for them cannot wait."""
    return signals.num_rows > _SPIKE_FACTOR * state.num_rows + _SPIKE_ROWS


def _fallback(view: View, signals: Signals) -> Choice:
    """Return the best that is left when a guard forbids what runs, no heavier than it."""
    reason = view.caps[view.held.drafter].reason or Reason.STEADY
    narrower = view.peak(view.held.drafter)
    if narrower is not None:
        return Choice(narrower.arm, reason)
    most = view.worths[view.held].seconds
    lighter = [
        peak
        for peak in view.peaks()
        if peak.arm.is_plain or (peak.seconds <= most and pays_at_once(peak, 1.0, signals))
    ]
    return Choice(lighter[0].arm, reason)


def _forbidden(view: View, is_throttled: bool) -> Iterator[Blocked]:
    """Yield the best arm of each drafter that a guard forbids though the law would take it."""
    for drafter in view.outlooks:
        arms = [worth for arm, worth in view.worths.items() if arm.drafter == drafter]
        best = max(arms, key=lambda worth: worth.value)
        reason = view.caps[drafter].reason
        if reason is None or view.is_allowed(best.arm):
            continue
        # Worth a change, not only worth more: between equals the reason would flicker with noise.
        if _is_worth_it(best, view, is_throttled):
            yield Blocked(best.arm, reason)


def _is_worth_it(worth: Worth, view: View, is_throttled: bool) -> bool:
    """Return whether an arm promises what a change to it must."""
    if worth.arm.drafter == view.held.drafter:
        return _is_worth_widening(worth, view)
    if _has_shorter_steps(worth, view):
        return _is_worth_less_work(worth, view, is_throttled)
    return _is_worth_more_work(worth, view, is_throttled)


def _lighter(view: View, signals: Signals) -> Worth | None:
    """Return a drafter, or plain, with shorter steps that is worth more by the mean.

    Plain decoding costs nothing to change to, a drafter that was cold what its context lacks, or
    the time until the requests that run have ended.
    """
    return next(
        (
            peak
            for peak in view.other_peaks()
            if _has_shorter_steps(peak, view)
            and _is_worth_less_work(peak, view, signals.reading.is_throttled)
            and pays(peak, view.current.value, signals)
        ),
        None,
    )


def _heavier(view: View, is_throttled: bool) -> Worth | None:
    """Return a drafter with longer steps that is worth more by its lower bound, load to come."""
    return next(
        (
            peak
            for peak in view.other_peaks()
            if not _has_shorter_steps(peak, view) and _is_worth_more_work(peak, view, is_throttled)
        ),
        None,
    )


def _has_shorter_steps(worth: Worth, view: View) -> bool:
    return worth.seconds < view.current.seconds


def _is_worth_less_work(worth: Worth, view: View, is_throttled: bool) -> bool:
    current = view.current.value
    # What nobody tried is worth at least what it is expected to be worth at least.
    value = view.promise(worth, is_lower=False)
    # Below plain nothing is worth staying for, however small the loss.
    return value >= (1.0 if current < 1.0 else _margin(_LIGHTER_GAIN, is_throttled) * current)


def _is_worth_more_work(worth: Worth, view: View, is_throttled: bool) -> bool:
    promised = view.promise(view.ahead[worth.arm], is_lower=True)
    return promised >= _wanted_of_more_work(view, is_throttled)


def _wanted_of_more_work(view: View, is_throttled: bool) -> float:
    gain = _LEAVE_PLAIN_GAIN if view.held.is_plain else _HEAVIER_GAIN
    return _margin(gain, is_throttled) * view.ahead[view.current.arm].value


def lacks_evidence(worth: Worth, view: View, is_throttled: bool) -> bool:
    """Return whether an arm of another drafter would be taken if its mean were certain."""
    if _has_shorter_steps(worth, view):
        return False
    ahead = view.ahead[worth.arm]
    promised = view.promise(ahead, is_lower=True)
    return promised < _wanted_of_more_work(view, is_throttled) <= ahead.value


def _is_worth_widening(worth: Worth, view: View) -> bool:
    lower = view.lower_beyond(worth.arm, view.held)
    return lower >= _WIDER_GAIN * view.ahead[view.held].value


def _objection(
    heavier: Worth, view: View, state: State, signals: Signals, terms: Terms
) -> Reason | None:
    """Return what keeps a heavier drafter back; None where nothing does."""
    drafter = heavier.arm.drafter
    if state.is_dwelling(terms.limits, signals.now_s):
        return Reason.DWELL
    is_tried = state.probe is not None and state.probe.arm.drafter == drafter
    # Before the first step of a burst a second look would come after its prompts were computed, and
    # the drafter would lack their context.
    is_first = signals.num_decoding == 0
    if not (is_tried or is_first) and state.confirming != drafter:
        return Reason.CONFIRMING
    if not state.switches.can_pay(1.0):
        return Reason.SWITCH_BUDGET
    return None if pays(heavier, view.current.value, signals) else Reason.SWITCH_COST


def _width(view: View) -> tuple[Arm, Reason]:
    """Return the draft length to go on with."""
    held = view.worths[view.held]
    best = view.current
    if best.arm == held.arm:
        return held.arm, Reason.STEADY
    if best.arm.draft_length > held.arm.draft_length:
        if _is_worth_widening(best, view):
            return best.arm, Reason.WIDER
        return held.arm, Reason.STEADY
    gain = _LOW_LOAD_GAIN if view.load.num_rows <= _LOW_LOAD_ROWS else _NARROWER_GAIN
    if best.value >= gain * held.value:
        return best.arm, Reason.NARROWER
    return held.arm, Reason.STEADY


def _why_lighter(view: View, spiked: bool) -> Reason:
    if spiked:
        return Reason.LOAD_SPIKE
    return Reason.SLOWER_THAN_PLAIN if view.current.value < 1.0 else Reason.FASTER


def _margin(gain: float, is_throttled: bool) -> float:
    return 1.0 + (gain - 1.0) * (_THROTTLED_MARGIN if is_throttled else 1.0)

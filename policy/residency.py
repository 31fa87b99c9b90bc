"""What is kept of each drafter while it does not draft."""

from dataclasses import replace

from policy.arms import Arm
from policy.decision import Residency
from policy.governor import Release
from policy.pins import Pin
from policy.signals import Signals
from policy.state import Standby, State
from policy.terms import Terms


def stood_by(state: State, home: Arm, signals: Signals) -> Standby:
    """Return which idle drafter is kept warm, after the steps in the signals.

    Rent or buy: a context is kept until that has taken as long as catching up once would. Nobody
    knows how long plain decoding will last, and this costs at most twice the better choice.

    Args:
        state: What was learnt.
        home: What is in force, beneath a trial.
        signals: Has what each drafter would need.
    """
    if not home.is_plain:
        return Standby(home.drafter)
    standby = state.standby
    # Where nothing decodes there is no context that could be lost.
    is_released = _released(state, signals.pin) >= Release.DRAFTING
    if standby.drafter is None or signals.num_decoding == 0 or is_released:
        return Standby()
    condition = signals.condition_of(standby.drafter)
    paid_s = standby.paid_s + condition.sync_s * len(signals.steps)
    if not condition.is_loaded or paid_s > condition.catch_up_s:
        return Standby()
    return replace(standby, paid_s=paid_s)


def residency(state: State, arm: Arm, terms: Terms, pin: Pin | None) -> dict[str, Residency]:
    """Return what is kept of each drafter while an arm runs."""
    release = _released(state, pin)
    idle = Residency.COLD
    if release >= Release.WEIGHTS:
        idle = Residency.NO_WEIGHTS
    elif release >= Release.CONTEXT_PAGES:
        idle = Residency.NO_CONTEXT
    warm = (arm.drafter, state.standby.drafter, state.leaving and state.leaving.drafter)
    return {name: Residency.WARM if name in warm else idle for name in terms.ladder.names}


def _released(state: State, pin: Pin | None) -> Release:
    """Return what is given up, for memory or because an operator ordered it."""
    is_ordered = pin is not None and pin.release_drafter
    return Release.WEIGHTS if is_ordered else state.governor.release

"""What is kept of each drafter while it does not draft."""

from dataclasses import replace

from policy.arms import Arm
from policy.decision import Residency
from policy.governor import Release
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
    is_useless = signals.num_decoding == 0 or state.governor.release >= Release.DRAFTING
    if standby.drafter is None or is_useless:
        return Standby()
    condition = signals.condition_of(standby.drafter)
    paid_s = standby.paid_s + condition.sync_s * len(signals.steps)
    if not condition.is_loaded or paid_s > condition.catch_up_s:
        return Standby()
    return replace(standby, paid_s=paid_s)


def residency(state: State, arm: Arm, terms: Terms) -> dict[str, Residency]:
    """Return what is kept of each drafter while an arm runs."""
    release = state.governor.release
    idle = Residency.COLD
    if release >= Release.WEIGHTS:
        idle = Residency.NO_WEIGHTS
    elif release >= Release.CONTEXT_PAGES:
        idle = Residency.NO_CONTEXT
    warm = (arm.drafter, state.standby.drafter, state.leaving and state.leaving.drafter)
    return {name: Residency.WARM if name in warm else idle for name in terms.ladder.names}

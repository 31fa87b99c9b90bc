"""One decision: learn, look, choose. Pure, so a day of traffic replays in seconds."""

from dataclasses import replace

from policy.arms import PLAIN, Arm
from policy.decision import Decision, Plan, Realised
from policy.guards import hard_caps
from policy.law import Choice, choose
from policy.learning import judged, learned
from policy.lengths import lengths_by_request
from policy.probe import NUM_CANARIES, Pace, Probe, ProbeClock
from policy.reasons import Reason
from policy.residency import residency, stood_by
from policy.signals import Signals
from policy.state import State
from policy.takeover import is_under_way, leaving, left_by
from policy.terms import Terms
from policy.trials import goes_on, next_trial, settled
from policy.view import View


def decide(last: Decision, signals: Signals, terms: Terms) -> Decision:
    """Return the next decision. The same arguments give the same one, to the bit.

    Args:
        last: The decision in force; `policy.decision.first_decision` before any.
        signals: What was measured since, the time and one random number.
        terms: The operator's limits, the drafters and their step times.
    """
    state = learned(last.state, signals, terms)
    held = state.home_of(last.plan.arm)
    probe = state.probe
    if probe is not None and probe.is_over:
        state = judged(state, probe)
    view = View.of(held, state, signals, terms)
    if probe is not None and signals.pin is None and goes_on(probe, state, signals, terms):
        return _decision(Choice(probe.arm, Reason.PROBE), view, state, signals, terms)
    choice = _choice(view, state, signals, terms)
    realised = None
    if probe is not None:
        realised = _realised(probe, state)
        state = settled(probe, choice.arm, state, view, signals, terms)
    else:
        choice, state = _or_trial(choice, view, state, signals, terms)
    state = _changed(state, choice, view, signals, terms)
    return replace(_decision(choice, view, state, signals, terms), realised=realised)


def _choice(view: View, state: State, signals: Signals, terms: Terms) -> Choice:
    """Return what an operator pinned; without a pin, what the law says."""
    if signals.pin is not None:
        return _pinned(signals.pin.arm, view, state, signals, terms)
    choice = choose(view, state, signals, terms)
    if state.probe is not None and choice.arm == view.held:
        return replace(choice, reason=Reason.PROBE_ENDED)
    return choice


def _or_trial(
    choice: Choice, view: View, state: State, signals: Signals, terms: Terms
) -> tuple[Choice, State]:
    """Return a trial in the place of a choice that changes nothing, where one is due."""
    is_quiet = choice.arm == view.held and choice.confirming is None
    is_free = signals.pin is None and is_quiet and not is_under_way(state, signals.now_s)
    trial = next_trial(view, state, signals, terms) if is_free else None
    if trial is None:
        return choice, state
    return replace(choice, arm=trial.arm, reason=Reason.PROBE), replace(state, probe=trial)


def _pinned(arm: Arm, view: View, state: State, signals: Signals, terms: Terms) -> Choice:
    """Return the pinned arm, or as much of it as can run at all.

    Where nothing of it can, the law says what does: when memory is amber that may be a lighter
    drafter, which is more than a pin of a heavy one would leave by itself.
    """
    cap = hard_caps(state, signals, terms)[arm.drafter]
    if cap.allows(arm):
        return Choice(arm, Reason.PINNED)
    possible = terms.ladder.arms_of(arm.drafter, cap.max_draft_length)
    reason = cap.reason or Reason.PINNED
    if possible:
        return Choice(possible[-1], reason)
    return replace(choose(view, state, signals, terms), reason=reason)


def _realised(probe: Probe, state: State) -> Realised | None:
    """Return what a trial that is over says about what is in force."""
    gain = state.pace.over(probe.pace) if probe.is_over else None
    return None if gain is None else Realised(probe.home, probe.arm, gain)


def _changed(state: State, choice: Choice, view: View, signals: Signals, terms: Terms) -> State:
    """Return the state with what the choice spends and starts."""
    state = replace(state, confirming=choice.confirming, num_rows=signals.num_rows)
    arm = state.home_of(choice.arm)
    state = replace(state, standby=stood_by(state, arm, signals))
    if arm.drafter == view.held.drafter:
        return replace(state, leaving=leaving(state, view, signals))
    is_heavier = view.worths[arm].seconds > view.worths[view.held].seconds
    # What a change has brought is measured against plain soon after it.
    soon = ProbeClock(signals.now_s, terms.limits.probe_gap_s, signals.num_decoding)
    return replace(
        state,
        leaving=left_by(view) if choice.is_takeover else None,
        changed_s=signals.now_s,
        confirming=None,
        switches=state.switches.spent(1.0) if is_heavier else state.switches,
        clocks={**state.clocks, PLAIN: soon} if not arm.is_plain else state.clocks,
        pace=Pace(),
    )


def _decision(choice: Choice, view: View, state: State, signals: Signals, terms: Terms) -> Decision:
    arm = choice.arm
    by_request: dict[str, int] = {}
    num_graded, num_drafting, taking_over = 0, None, state.leaving
    if not arm.is_plain:
        outlook, survival = view.outlooks[arm.drafter], state.survival_of(arm.drafter)
        by_request = lengths_by_request(arm, outlook, survival, view.prices, signals, terms)
        widest = terms.ladder.rungs_of(arm.drafter).draft_lengths[-1]
        num_graded = int(arm.draft_length < widest)
        if state.probe is not None:
            num_drafting = state.probe.num_drafting
            num_graded = min(NUM_CANARIES, num_drafting)
            taking_over = None
    kept = residency(state, arm, terms, signals.pin)
    plan = Plan(arm, by_request, num_drafting, taking_over, num_graded, kept)
    return Decision(signals.now_s, plan, choice.reason, view.scores(), choice.blocked, state=state)

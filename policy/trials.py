"""When to try what is idle, for how long, and what a trial costs."""

from collections.abc import Iterator
from dataclasses import replace

from policy.arms import PLAIN, PLAIN_ARM, Arm
from policy.goodput import drafting_worth
from policy.guards import hard_caps
from policy.law import is_spike, lacks_evidence
from policy.probe import Probe, probe_arm
from policy.signals import Signals
from policy.state import State
from policy.terms import Terms
from policy.view import View


def goes_on(probe: Probe, state: State, signals: Signals, terms: Terms) -> bool:
    """Return whether a trial should run further."""
    if probe.is_over or signals.num_decoding == 0 or is_spike(state, signals):
        return False
    return _is_possible(probe.arm, state, signals, terms)


def next_trial(view: View, state: State, signals: Signals, terms: Terms) -> Probe | None:
    """Return the trial to start now; None where nothing is due, possible or affordable.

    The one that was unseen for longest comes first, and what it costs is saved for: a cheap one
    that went before it each time, as plain decoding's does, would keep it out for minutes.
    """
    if signals.num_decoding == 0 or state.is_dwelling(terms.limits, signals.now_s):
        return None
    due = [
        name
        for name, clock in state.clocks.items()
        if name != view.held.drafter and clock.is_due(signals.now_s)
    ]
    for name in sorted(due, key=lambda name: state.clocks[name].seen_s):
        arm = _trial_arm(name, signals, state, terms)
        if arm is None:
            continue
        price_s, probe = min(
            ((_price_s(probe, view, state, signals), probe) for probe in _ways_to_try(arm, view)),
            key=lambda way: way[0],
        )
        return probe if state.ledger.can_pay(price_s) else None
    return None


def settled(
    probe: Probe, arm: Arm, state: State, view: View, signals: Signals, terms: Terms
) -> State:
    """Return the state after a trial, paid for, with the next one set.

    Args:
        probe: The trial, over or broken off.
        arm: What was chosen after it.
        state: What was learnt, the trial included.
        view: Worths after it.
        signals: The moment.
        terms: Has the gaps.
    """
    limits, name = terms.limits, probe.arm.drafter
    clock = replace(state.clocks[name], seen_s=signals.now_s)
    if arm.drafter == name:
        clock = replace(clock, gap_s=limits.probe_gap_s)
    elif _is_promising(name, view, signals):
        clock = replace(clock, gap_s=limits.probe_gap_s).at_once(signals.now_s)
    elif probe.is_over:
        clock = clock.after_probe(
            limits.probe_gap_max_s, signals.now_s, signals.num_decoding, signals.draw
        )
    loss = loss_s(probe, probe.num_steps, view, signals)
    return replace(
        state,
        probe=None,
        ledger=state.ledger.spent(loss),
        clocks={**state.clocks, name: clock},
    )


def loss_s(probe: Probe, num_steps: int, view: View, signals: Signals) -> float:
    """Return the time that steps of a trial lose against what is in force, seconds.

    Believed times, not measured ones, so that a spike cannot empty the purse.
    """
    home, arm = view.worths[probe.home], probe.arm
    if arm.is_plain:
        tried = view.worths[arm]
        return num_steps * tried.seconds * max(0.0, 1.0 - tried.value / home.value)
    plainly = (0,) * max(0, view.load.num_rows - probe.num_drafting)
    tried = drafting_worth(arm, view.outlooks[arm.drafter], plainly, view.prices, view.load)
    lost = num_steps * tried.seconds * max(0.0, 1.0 - tried.value / home.value)
    # Only those that draft in it are caught up with.
    share = min(1.0, probe.num_drafting / view.load.num_rows)
    return lost + share * signals.condition_of(arm.drafter).catch_up_s


def _price_s(probe: Probe, view: View, state: State, signals: Signals) -> float:
    known = state.survival_of(probe.arm.drafter)
    return loss_s(probe, probe.num_steps_planned(known, signals.num_decoding), view, signals)


def _ways_to_try(arm: Arm, view: View) -> Iterator[Probe]:
    """Yield trials with a few requests, with one, and with all where a drafter was tried before.

    With one fewest contexts are caught up, and it takes longest to see enough. A pass that drafts
    for a few costs nearly what one for all does, and only a few gain: what is likely worth as much
    as what runs is tried for less with all of them.
    """
    yield Probe(arm, view.held)
    if arm.is_plain:
        return
    yield Probe(arm, view.held, 1)
    peak = view.peak(arm.drafter)
    if peak is not None and view.outlooks[arm.drafter].is_tried:
        yield Probe(peak.arm, view.held, view.load.num_rows)


def _is_promising(name: str, view: View, signals: Signals) -> bool:
    """Return whether a drafter would win by the mean, and lacks only the evidence for it."""
    peak = view.peak(name)
    return peak is not None and lacks_evidence(peak, view, signals.reading.is_throttled)


def _trial_arm(name: str, signals: Signals, state: State, terms: Terms) -> Arm | None:
    if name == PLAIN:
        return PLAIN_ARM
    widest = terms.ladder.rungs_of(name).draft_lengths[-1]
    arms = [
        arm
        for arm in terms.ladder.arms_of(name, widest)
        if _is_possible(arm, state, signals, terms)
    ]
    return probe_arm(tuple(arms)) if arms else None


def _is_possible(arm: Arm, state: State, signals: Signals, terms: Terms) -> bool:
    """Return whether an arm may run at all: health and goodput are what a trial is to find out."""
    caps = hard_caps(state, signals, terms)
    return caps[arm.drafter].allows(arm) and arm.drafter not in state.barred

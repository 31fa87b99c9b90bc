"""What the steps since the last decision teach."""

from dataclasses import dataclass, replace

from policy.arms import PLAIN
from policy.governor import Pressure
from policy.probe import NUM_SETTLING_STEPS, Probe
from policy.signals import Signals, StepSample
from policy.state import State
from policy.terms import Terms

# A drafter over its concurrency limit may run again below this share of it.
_UNBAR_SHARE = 0.8
# Longest time between two looks in which steps ran all along, seconds.
_LONGEST_BUSY_S = 2.0


def learned(state: State, signals: Signals, terms: Terms) -> State:
    """Return the state with everything in the signals entered."""
    for step in signals.steps:
        state = _after_step(state, step, signals.now_s, terms)
    limits, now_s = terms.limits, signals.now_s
    pressure = Pressure(
        signals.pool.occupancy,
        sum(step.num_preempted for step in signals.steps),
        signals.reading,
        signals.restore_bytes,
    )
    # Idle time earns nothing, for only busy time can be lost; and a gap between two looks that is
    # longer than steps can take was idle.
    earning = limits.exploration_share if signals.num_decoding else 0.0
    return replace(
        state,
        governor=state.governor.after(pressure, limits.memory, now_s),
        ledger=state.ledger.filled(earning, now_s, _LONGEST_BUSY_S),
        switches=state.switches.filled(limits.switches_per_minute / 60.0, now_s),
        barred=_barred(state.barred, signals.num_decoding, terms),
        clocks={
            name: clock.at_load(signals.num_decoding, limits.probe_gap_s)
            for name, clock in state.clocks.items()
        },
    )


def _barred(barred: tuple[str, ...], num_rows: int, terms: Terms) -> tuple[str, ...]:
    """Return the drafters over the operator's limit, which they re-enter well below it."""
    return tuple(
        drafter
        for drafter, most in terms.limits.max_concurrency.items()
        if num_rows > (min(most * _UNBAR_SHARE, most - 1) if drafter in barred else most)
    )


def _after_step(state: State, step: StepSample, now_s: float, terms: Terms) -> State:
    drafter = step.arm.drafter
    settled = state.num_settled + 1 if drafter == state.ran else 0
    state = replace(state, ran=drafter, num_settled=settled)
    if step.num_decoding == 0:
        return state
    timed = _Timed.of(step, settled, terms)
    if timed is not None:
        corrections = state.corrections.plus(step.arm, step.num_decoding, timed.ratio, now_s)
        if corrections.num_rejected > state.corrections.num_rejected:
            timed = None
        state = replace(state, corrections=corrections)
    state = _with_grades(state, step, settled)
    state = _with_pace(state, step, timed)
    clock = replace(state.clocks[drafter], seen_s=now_s)
    return replace(state, clocks={**state.clocks, drafter: clock})


@dataclass(frozen=True, slots=True)
class _Timed:
    """A step whose time may say something: over the first of its drafter, and decoding alone."""

    ratio: float

    @classmethod
    def of(cls, step: StepSample, settled: int, terms: Terms) -> "_Timed | None":
        is_other = step.num_other_tokens > 0 or step.num_draft_tokens == 0 < step.arm.draft_length
        if settled == 0 or is_other or step.step_time_s <= 0.0:
            return None
        width = step.num_draft_tokens / step.num_decoding
        if not terms.costs.is_measured(step.arm, width):
            return None
        tabled = terms.costs.seconds(step.arm, step.num_decoding, width, step.num_context_tokens)
        return cls(step.step_time_s / tabled)


def _with_grades(state: State, step: StepSample, settled: int) -> State:
    """Enter the grades: a trial's with the trial, others with what is known of the drafter."""
    drafter = step.arm.drafter
    if drafter == PLAIN:
        return state
    probe = state.probe
    if settled >= NUM_SETTLING_STEPS and step.graded:
        if probe is not None and probe.arm.drafter == drafter:
            probe = replace(probe, found=probe.found.plus(step.graded, step.accepted))
        else:
            survival = state.survival_of(drafter).plus(step.graded, step.accepted)
            state = replace(state, survivals={**state.survivals, drafter: survival})
    breaker = state.breaker_of(drafter).after_step(
        step.has_drafter_fault, state.survival_of(drafter)
    )
    return replace(state, probe=probe, breakers={**state.breakers, drafter: breaker})


def _with_pace(state: State, step: StepSample, timed: _Timed | None) -> State:
    probe = state.probe
    if probe is not None and probe.arm.drafter == step.arm.drafter:
        pace = (
            probe.pace
            if timed is None
            else probe.pace.plus(step.num_emitted_tokens, step.step_time_s)
        )
        return replace(state, probe=replace(probe, num_steps=probe.num_steps + 1, pace=pace))
    if timed is None:
        return state
    return replace(state, pace=state.pace.plus(step.num_emitted_tokens, step.step_time_s))


def judged(state: State, probe: Probe) -> State:
    """Return the state with a trial that is over entered into what is known of its drafter."""
    drafter = probe.arm.drafter
    if drafter == PLAIN:
        return state
    survival = state.survival_of(drafter).judged_by(probe.found)
    breaker = state.breaker_of(drafter).after_probe(survival)
    return replace(
        state,
        survivals={**state.survivals, drafter: survival},
        breakers={**state.breakers, drafter: breaker},
    )

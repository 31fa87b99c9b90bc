"""What the steps since the last decision teach."""

from dataclasses import dataclass, replace

from policy.arms import PLAIN
from policy.breaker import Breaker
from policy.governor import Pressure
from policy.probe import NUM_SETTLING_STEPS, Probe, ProbeClock
from policy.signals import Signals, StepSample
from policy.state import State
from policy.survival import Survival
from policy.terms import Terms

# A drafter over its concurrency limit may run again below this share of it.
_UNBAR_SHARE = 0.8
_NOTHING_KNOWN, _HEALTHY = Survival(), Breaker()
# Longest time between two looks in which steps ran all along, seconds.
_LONGEST_BUSY_S = 2.0


def learned(state: State, signals: Signals, terms: Terms) -> State:
    """Return the state with everything in the signals entered."""
    limits, now_s = terms.limits, signals.now_s
    # What is known of a drafter goes stale while others decode, not while nobody does.
    idle_s = 0.0 if signals.num_decoding else max(0.0, now_s - state.ledger.at_s)
    lesson = _Lesson(state, now_s, terms)
    for step in signals.steps:
        lesson.take(step)
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
        survivals=lesson.survivals,
        corrections=lesson.corrections,
        breakers=lesson.breakers,
        probe=lesson.probe,
        ran=lesson.ran,
        num_settled=lesson.num_settled,
        pace=lesson.pace,
        governor=state.governor.after(pressure, limits.memory, now_s),
        ledger=state.ledger.filled(earning, now_s, _LONGEST_BUSY_S),
        switches=state.switches.filled(limits.switches_per_minute / 60.0, now_s),
        barred=_barred(state.barred, signals.num_rows, terms),
        clocks={
            # Fewer requests speak for drafting, never for plain decoding.
            name: clock
            if name == PLAIN
            else clock.at_load(signals.num_decoding, limits.probe_gap_s)
            for name, clock in lesson.clocks(idle_s).items()
        },
    )


def _barred(barred: tuple[str, ...], num_rows: int, terms: Terms) -> tuple[str, ...]:
    """Return the drafters over the operator's limit, which they re-enter well below it."""
    return tuple(
        drafter
        for drafter, most in terms.limits.max_concurrency.items()
        if num_rows > (min(most * _UNBAR_SHARE, most - 1) if drafter in barred else most)
    )


class _Lesson:
    """What is known, while the steps of one look are gone through."""

    def __init__(self, state: State, now_s: float, terms: Terms) -> None:
        self.survivals, self.breakers = dict(state.survivals), dict(state.breakers)
        self.corrections, self.probe, self.pace = state.corrections, state.probe, state.pace
        self.ran, self.num_settled = state.ran, state.num_settled
        self._state, self._now_s, self._terms = state, now_s, terms
        self._seen: set[str] = set()

    def clocks(self, idle_s: float) -> dict[str, ProbeClock]:
        """Return the clocks, with what ran seen now, and the others set back by idle time."""
        now_s = self._now_s
        return {
            name: replace(clock, seen_s=now_s if name in self._seen else clock.seen_s + idle_s)
            for name, clock in self._state.clocks.items()
        }

    def take(self, step: StepSample) -> None:
        """Enter one step."""
        drafter = step.arm.drafter
        self.num_settled = self.num_settled + 1 if drafter == self.ran else 0
        self.ran = drafter
        if step.num_decoding == 0:
            return
        self._seen.add(drafter)
        timed = _Timed.of(step, self.num_settled, self._terms)
        if timed is not None:
            before = self.corrections.num_rejected
            self.corrections = self.corrections.plus(
                step.arm, step.num_decoding, timed.ratio, self._now_s
            )
            if self.corrections.num_rejected > before:
                timed = None
        if drafter != PLAIN:
            self._grade(step)
        self._keep_pace(step, timed)

    def _grade(self, step: StepSample) -> None:
        """Enter grades: a trial's with the trial, others with what is known of the drafter."""
        drafter, probe = step.arm.drafter, self.probe
        survival = self.survivals.get(drafter, _NOTHING_KNOWN)
        if self.num_settled >= NUM_SETTLING_STEPS and step.graded:
            if probe is not None and probe.arm.drafter == drafter:
                self.probe = replace(probe, found=probe.found.plus(step.graded, step.accepted))
            else:
                survival = survival.plus(step.graded, step.accepted)
                self.survivals[drafter] = survival
        breaker = self.breakers.get(drafter, _HEALTHY)
        self.breakers[drafter] = breaker.after_step(step.has_drafter_fault, survival)

    def _keep_pace(self, step: StepSample, timed: "_Timed | None") -> None:
        probe, emitted = self.probe, step.num_emitted_tokens
        if probe is not None and probe.arm.drafter == step.arm.drafter:
            pace = probe.pace if timed is None else probe.pace.plus(emitted, step.step_time_s)
            self.probe = replace(probe, num_steps=probe.num_steps + 1, pace=pace)
        elif timed is not None:
            self.pace = self.pace.plus(emitted, step.step_time_s)


@dataclass(frozen=True, slots=True)
class _Timed:
    """A step whose time may say something: over the first of its drafter, and decoding alone."""

    ratio: float

    @classmethod
    def of(cls, step: StepSample, settled: int, terms: Terms) -> "_Timed | None":
        is_other = step.num_other_tokens > 0 or step.num_draft_tokens == 0 < step.arm.draft_length
        if settled == 0 or is_other or step.is_mixed or step.step_time_s <= 0.0:
            return None
        width = step.num_draft_tokens / step.num_decoding
        if not terms.costs.is_measured(step.arm, width):
            return None
        tabled = terms.costs.seconds(step.arm, step.num_decoding, width, step.num_context_tokens)
        return cls(step.step_time_s / tabled)


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

"""What the policy is told: the steps since its last look, the requests, and what is around."""

import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from deployments.request_history import RequestHistory
from deployments.step_times import StepTimes
from dflash.plan import Decoding, PlanSignals
from dflash.stats import DrafterStats, StepStats
from policy.arms import Arm
from policy.governor import Release
from policy.limits import Limits
from policy.pins import Pin, pin_in_force
from policy.readings import MemoryReading
from policy.signals import DrafterCondition, PoolSignal, Signals, StepSample

# Between two looks where nothing sudden happens: steps, and seconds, since a look takes as long
# beside a short step as beside a long one. Fewer where the last one saw no reason for a change.
_NUM_STEPS = 4
_LOOK_S, _STEADY_LOOK_S = 0.1, 0.25
# Between two looks while nothing runs, seconds.
_IDLE_LOOK_S = 1.0
# So many more requests than at the last look call for another at once.
_JUMP_FACTOR = 1.5


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an operator wants. Replaced whole between two steps, from any thread.

    Attributes:
        limits: Bounds.
        pins: Their ends are on the clock of the signals; the last one that holds counts.
    """

    limits: Limits = field(default_factory=Limits)
    pins: tuple[Pin, ...] = ()


@dataclass(frozen=True, slots=True)
class Sources:
    """Whom the policy of a replica asks beside the engine.

    Attributes:
        replica: Its name, for pins.
        reading: Returns the newest reading of device memory, at once.
        context_bytes: Memory of all drafters' context pages.
        weights_bytes: Memory of all drafters' weights.
        clock: Seconds that never go back.
        draw: Uniform numbers in [0, 1).
    """

    replica: str = ""
    reading: Callable[[], MemoryReading] = MemoryReading
    context_bytes: int = 0
    weights_bytes: int = 0
    clock: Callable[[], float] = time.monotonic
    draw: Callable[[], float] = random.random

    def restore_bytes(self, release: Release) -> int:
        """Return the memory that undoing a release would take."""
        taken = {Release.CONTEXT_PAGES: self.context_bytes, Release.WEIGHTS: self.weights_bytes}
        return taken.get(release, 0)


class Observation:
    """Gathers the engine's steps until someone looks at them.

    Attributes:
        num_context_tokens: Mean tokens of the requests that decoded last.
    """

    def __init__(self, times: StepTimes, sources: Sources) -> None:
        """Start with nothing seen.

        Args:
            times: What contexts cost.
            sources: Whom to ask.
        """
        self.num_context_tokens = 0
        self._times, self._sources = times, sources
        self._requests = RequestHistory()
        self._steps: list[StepSample] = []
        self._last: StepStats | None = None
        self._num_rows = 0
        self._looked_s = sources.clock()

    def see(self, signals: PlanSignals, arm: Arm, *, is_steady: bool = False) -> bool:
        """Enter the step that was computed last; return whether to look now.

        After a few steps and a tenth of a second, or a quarter where nothing asked for a change and
        as many decode; at once where something happened, each second where nothing runs, and
        before the first step of requests that come then.

        Args:
            signals: What the engine says before its next step.
            arm: What was asked of the step before.
            is_steady: Whether the last look gave no reason for a change.
        """
        if self._last is not None and signals.last is not self._last:
            self._steps.append(sample_of(signals.last, arm, self.num_context_tokens))
        self._last = signals.last
        self.num_context_tokens = _mean_tokens(signals.decoding)
        self._requests.see(signals.decoding)
        has_jumped = len(signals.decoding) > _JUMP_FACTOR * self._num_rows + _NUM_STEPS
        was_preempted = bool(self._steps) and self._steps[-1].num_preempted > 0
        since_s = self._sources.clock() - self._looked_s
        if not signals.decoding and not signals.counts.num_running:
            return since_s >= _IDLE_LOOK_S or signals.counts.num_waiting > 0
        is_same = is_steady and len(signals.decoding) == self._num_rows
        pause_s = _STEADY_LOOK_S if is_same else _LOOK_S
        is_time = len(self._steps) >= _NUM_STEPS and since_s >= pause_s
        return is_time or has_jumped or was_preempted

    def look(
        self, signals: PlanSignals, pins: Collection[Pin] = (), release: Release = Release.NOTHING
    ) -> Signals:
        """Return what the policy is told now, and begin anew.

        Args:
            signals: What the engine says.
            pins: The operator's.
            release: What is given up for memory.
        """
        steps, self._steps = tuple(self._steps), []
        sources, counts, rows = self._sources, signals.counts, len(signals.decoding)
        now_s, self._num_rows = sources.clock(), rows
        self._looked_s = now_s
        return Signals(
            now_s=now_s,
            draw=sources.draw(),
            num_decoding=rows,
            num_waiting=counts.num_waiting,
            num_admissible=max(0, signals.max_num_seqs - counts.num_running),
            num_prefill_tokens=sum(s.num_other_tokens for s in steps) // max(1, len(steps)),
            num_context_tokens=self.num_context_tokens,
            steps=steps,
            requests=self._requests.signals(signals.decoding),
            drafters={
                name: DrafterCondition(
                    is_loaded=name not in signals.absent,
                    catch_up_s=num_behind * self._times.costs.prefill_s,
                    sync_s=self._times.sync_s(name, max(1, rows), self.num_context_tokens),
                )
                for name, num_behind in signals.num_behind.items()
            },
            pool=PoolSignal(counts.num_pages_total, counts.num_pages_used, signals.page_size),
            reading=sources.reading(),
            restore_bytes=sources.restore_bytes(release),
            pin=pin_in_force(pins, sources.replica, now_s),
        )


def sample_of(stats: StepStats, arm: Arm, num_context_tokens: int) -> StepSample:
    """Return a step as the policy sees it.

    Args:
        stats: Its counts.
        arm: What its plan asked for.
        num_context_tokens: Mean tokens of the requests that decoded.
    """
    did = stats.by_drafter.get(arm.drafter, _DID_NOTHING)
    grades = did.grades
    return StepSample(
        arm=arm,
        num_decoding=stats.num_decoding,
        num_draft_tokens=did.num_draft_tokens,
        num_context_tokens=num_context_tokens,
        num_other_tokens=stats.num_prefill_tokens + stats.num_catch_up_tokens,
        num_emitted_tokens=stats.num_emitted_tokens,
        num_preempted=stats.num_preempted,
        step_time_s=stats.step_time_s,
        graded=_sums(grades.verified_graded, grades.free_graded),
        accepted=_sums(grades.verified_accepted, grades.free_accepted),
        has_drafter_fault=did.num_faults > 0,
        is_mixed=stats.num_draft_tokens > did.num_draft_tokens,
    )


def _mean_tokens(decoding: Sequence[Decoding]) -> int:
    return sum(request.num_tokens for request in decoding) // max(1, len(decoding))


def _sums(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip_longest(first, second, fillvalue=0))


_DID_NOTHING = DrafterStats()

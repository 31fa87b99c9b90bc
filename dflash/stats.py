"""Counts of one step, and of the engine between two steps."""

from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True, slots=True)
class StepStats:
    """Counts of one engine step.

    Attributes:
        num_decoding: Requests that had one token to compute.
        num_prefilling: Requests that had more to compute, and computed a part.
        num_prefill_tokens: Tokens computed for those.
        num_emitted_tokens: Tokens that requests gained.
        num_finished: Requests that ended by a stop or at their length.
        num_failed: Requests that ended with an error.
        num_preempted: Requests that lost their pages to older ones.
        num_cached_tokens: Tokens that needed no computing because the prefix cache had them.
        step_time_s: Wall time of the step, seconds.
    """

    num_decoding: int = 0
    num_prefilling: int = 0
    num_prefill_tokens: int = 0
    num_emitted_tokens: int = 0
    num_finished: int = 0
    num_failed: int = 0
    num_preempted: int = 0
    num_cached_tokens: int = 0
    step_time_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineCounts:
    """What the engine holds between two steps.

    Attributes:
        num_running: Requests that hold pages.
        num_waiting: Requests that hold none, preempted ones included.
        num_waiting_tokens: Tokens of those.
        num_pages_used: Pages that requests own.
        num_pages_cached: Pages without an owner that the prefix cache keeps.
        num_pages_total: All pages.
    """

    num_running: int
    num_waiting: int
    num_waiting_tokens: int
    num_pages_used: int
    num_pages_cached: int
    num_pages_total: int


@dataclass(frozen=True, slots=True)
class LoopSnapshot(EngineCounts):
    """The engine between two steps, with sums over all steps since the start.

    Attributes:
        num_steps: Steps.
        num_preemptions: Times a request lost its pages to an older one.
        num_prefill_tokens: Tokens computed in runs of more than one.
        num_emitted_tokens: Tokens that requests gained.
        num_cached_tokens: Tokens that needed no computing because the prefix cache had them.
        num_finished: Requests that ended by a stop or at their length.
        num_failed: Requests that ended with an error.
        busy_time_s: Time spent in steps.
        num_faults_in_a_row: Steps that failed as a whole since the last that did not.
        last_fault: What the last such step raised; None where none ever did.
    """

    num_steps: int = 0
    num_preemptions: int = 0
    num_prefill_tokens: int = 0
    num_emitted_tokens: int = 0
    num_cached_tokens: int = 0
    num_finished: int = 0
    num_failed: int = 0
    busy_time_s: float = 0.0
    num_faults_in_a_row: int = 0
    last_fault: str | None = None

    @classmethod
    def of(cls, counts: EngineCounts) -> "LoopSnapshot":
        """Return the snapshot before the first step."""
        return cls(**asdict(counts))

    def between_steps(self, counts: EngineCounts) -> "LoopSnapshot":
        """Return the snapshot with what the engine holds now."""
        return replace(self, **asdict(counts))

    def after_step(self, stats: StepStats, fault: str | None) -> "LoopSnapshot":
        """Return the snapshot with one step more in its sums."""
        return replace(
            self,
            num_steps=self.num_steps + 1,
            num_preemptions=self.num_preemptions + stats.num_preempted,
            num_prefill_tokens=self.num_prefill_tokens + stats.num_prefill_tokens,
            num_emitted_tokens=self.num_emitted_tokens + stats.num_emitted_tokens,
            num_cached_tokens=self.num_cached_tokens + stats.num_cached_tokens,
            num_finished=self.num_finished + stats.num_finished,
            num_failed=self.num_failed + stats.num_failed,
            busy_time_s=self.busy_time_s + stats.step_time_s,
            num_faults_in_a_row=0 if fault is None else self.num_faults_in_a_row + 1,
            last_fault=self.last_fault if fault is None else fault,
        )

"""Counts of one step, and of the engine between two steps."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from itertools import zip_longest
from typing import Final

from dflash.durations import TOKEN_BOUNDS_S, BucketCounts

# Stand where a drafter is named: there is none, or nothing decoded.
NO_DRAFTER: Final = "plain"
ONLY_PREFILL: Final = "prefill"


class WhyPlain(StrEnum):
    """Why a request that decoded had no draft token verified.

    ``request``: it asked for none. ``plan``: the plan says so, or was refused. ``budget``: the
    step's tokens or the request's own left no room. ``pages``: no page was free.
    ``context_too_long``: it has more tokens than the drafter was trained for. ``catching_up``: the
    drafter's context is behind.
    ``drafter_failed``: it raised, or gave what cannot be token ids. ``nothing_proposed``: it had
    nothing to say. ``grammar``: its first draft token is none that the request's grammar allows.
    """

    REQUEST = "request"
    PLAN = "plan"
    BUDGET = "budget"
    PAGES = "pages"
    CONTEXT_TOO_LONG = "context_too_long"
    CATCHING_UP = "catching_up"
    DRAFTER_FAILED = "drafter_failed"
    NOTHING_PROPOSED = "nothing_proposed"
    GRAMMAR = "grammar"


@dataclass(frozen=True, slots=True)
class Grades:
    """Draft tokens compared with what the target chose, by their place in the draft.

    A draft token counts only where all before it were right: what follows a wrong one says
    nothing. So ``accepted / graded`` is the chance that a place is right when those before it are.

    Attributes:
        verified_graded: Compared in a verify run; index 0 is the first draft token.
        verified_accepted: Of those, the ones that were right.
        free_graded: Drafted beyond the verified ones, and compared with what came later.
        free_accepted: Of those, the ones that were right.
    """

    verified_graded: tuple[int, ...] = ()
    verified_accepted: tuple[int, ...] = ()
    free_graded: tuple[int, ...] = ()
    free_accepted: tuple[int, ...] = ()

    def plus(self, other: "Grades") -> "Grades":
        """Return the sums, place by place."""
        return Grades(
            _sums(self.verified_graded, other.verified_graded),
            _sums(self.verified_accepted, other.verified_accepted),
            _sums(self.free_graded, other.free_graded),
            _sums(self.free_accepted, other.free_accepted),
        )


@dataclass(frozen=True, slots=True)
class DrafterStats:
    """What one drafter did, in one step or in many.

    Attributes:
        num_drafting: Requests that had its draft tokens verified, once for each step.
        num_draft_tokens: Draft tokens verified.
        num_accepted_tokens: Of those, the ones emitted. Extra tokens are not in this count.
        grades: Its draft tokens graded and accepted, by place.
        time_s: Wall time of drafting and of extending its context, seconds.
        num_faults: Steps in which it failed.
        last_fault: What it raised last; None where it never did.
    """

    num_drafting: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    grades: Grades = field(default_factory=Grades)
    time_s: float = 0.0
    num_faults: int = 0
    last_fault: str | None = None

    @property
    def acceptance_length(self) -> float | None:
        """Mean tokens emitted per verify run, extra token included; None if none ran."""
        return 1.0 + self.num_accepted_tokens / self.num_drafting if self.num_drafting else None

    def plus(self, later: "DrafterStats") -> "DrafterStats":
        """Return the sums of both."""
        return DrafterStats(
            self.num_drafting + later.num_drafting,
            self.num_draft_tokens + later.num_draft_tokens,
            self.num_accepted_tokens + later.num_accepted_tokens,
            self.grades.plus(later.grades),
            self.time_s + later.time_s,
            self.num_faults + later.num_faults,
            later.last_fault or self.last_fault,
        )


@dataclass(frozen=True, slots=True)
class StepStats:
    """Counts of one engine step.

    The tokens computed are ``num_decoding + num_draft_tokens + num_prefill_tokens +
    num_catch_up_tokens``.

    Attributes:
        num_decoding: Requests that had one token to compute, past their prompt.
        by_drafter: What each drafter did, by name.
        num_catch_up_tokens: Tokens computed again because a drafter's context lacked them.
        plain_rows: Requests that decoded without a draft token, by reason.
        plan_fault: Why the planner's plan was not carried out; None where it was.
        num_prefilling: Requests that had more to compute, and computed a part.
        num_prefill_tokens: Tokens computed for those, for the first time or after a preemption.
        num_emitted_tokens: Tokens that requests gained.
        num_finished: Requests that ended by a stop or at their length.
        num_failed: Requests that ended with an error.
        num_preempted: Requests that lost their pages to older ones.
        num_cached_tokens: Tokens that needed no computing because the prefix cache had them.
        step_time_s: Wall time of the step, seconds.
    """

    num_decoding: int = 0
    by_drafter: Mapping[str, DrafterStats] = field(default_factory=dict)
    num_catch_up_tokens: int = 0
    plain_rows: Mapping[WhyPlain, int] = field(default_factory=dict)
    plan_fault: str | None = None
    num_prefilling: int = 0
    num_prefill_tokens: int = 0
    num_emitted_tokens: int = 0
    num_finished: int = 0
    num_failed: int = 0
    num_preempted: int = 0
    num_cached_tokens: int = 0
    step_time_s: float = 0.0

    @property
    def mode(self) -> str:
        """Who drafted for most of those that decoded; ``plain``, or ``prefill`` if none did."""
        if not self.num_decoding:
            return ONLY_PREFILL
        num_drafting = {name: each.num_drafting for name, each in self.by_drafter.items()}
        most = max(num_drafting, key=num_drafting.__getitem__, default=NO_DRAFTER)
        return most if num_drafting.get(most) else NO_DRAFTER

    @property
    def num_drafting(self) -> int:
        """Requests that had draft tokens verified; one has a single drafter in a step."""
        return sum(each.num_drafting for each in self.by_drafter.values())

    @property
    def num_draft_tokens(self) -> int:
        """Draft tokens verified."""
        return sum(each.num_draft_tokens for each in self.by_drafter.values())

    @property
    def num_accepted_tokens(self) -> int:
        """Draft tokens emitted."""
        return sum(each.num_accepted_tokens for each in self.by_drafter.values())

    @property
    def draft_time_s(self) -> float:
        """Wall time of the drafters, their contexts included, seconds."""
        return sum(each.time_s for each in self.by_drafter.values())

    @property
    def drafter_fault(self) -> str | None:
        """What a drafter raised, the first of them; None where none did."""
        faults = (each.last_fault for each in self.by_drafter.values())
        return next((fault for fault in faults if fault is not None), None)


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
        num_prefill_tokens: Tokens of prompts computed, and those computed after a preemption.
        num_emitted_tokens: Tokens that requests gained.
        num_cached_tokens: Tokens that needed no computing because the prefix cache had them.
        num_finished: Requests that ended by a stop or at their length.
        num_failed: Requests that ended with an error.
        busy_time_s: Time spent in steps.
        num_decode_steps: Steps of single requests that decoded, each of them a row.
        by_drafter: What each drafter did, by name.
        num_catch_up_tokens: Tokens computed again for drafters' contexts.
        plain_rows: Decode steps without draft tokens, by reason.
        num_plan_faults: Steps whose plan was refused.
        last_plan_fault: Why the last of them was; None where none was.
        num_faults_in_a_row: Steps that failed as a whole since the last that did not.
        last_fault: What the last such step raised; None where none ever did.
        num_decoding: Requests that decoded in the newest step.
        step_times: Wall times of all steps by their mode, bounds as `TOKEN_BOUNDS_S`.
    """

    num_steps: int = 0
    num_preemptions: int = 0
    num_prefill_tokens: int = 0
    num_emitted_tokens: int = 0
    num_cached_tokens: int = 0
    num_finished: int = 0
    num_failed: int = 0
    busy_time_s: float = 0.0
    num_decode_steps: int = 0
    by_drafter: Mapping[str, DrafterStats] = field(default_factory=dict)
    num_catch_up_tokens: int = 0
    plain_rows: Mapping[WhyPlain, int] = field(default_factory=dict)
    num_plan_faults: int = 0
    last_plan_fault: str | None = None
    num_faults_in_a_row: int = 0
    last_fault: str | None = None
    num_decoding: int = 0
    step_times: Mapping[str, BucketCounts] = field(default_factory=dict)

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
            num_decode_steps=self.num_decode_steps + stats.num_decoding,
            by_drafter=_together(self.by_drafter, stats.by_drafter),
            num_catch_up_tokens=self.num_catch_up_tokens + stats.num_catch_up_tokens,
            plain_rows=_added(self.plain_rows, stats.plain_rows),
            num_plan_faults=self.num_plan_faults + (stats.plan_fault is not None),
            last_plan_fault=stats.plan_fault or self.last_plan_fault,
            num_faults_in_a_row=0 if fault is None else self.num_faults_in_a_row + 1,
            last_fault=self.last_fault if fault is None else fault,
            num_decoding=stats.num_decoding,
            step_times=self._step_times_with(stats),
        )

    def _step_times_with(self, stats: StepStats) -> Mapping[str, BucketCounts]:
        so_far = self.step_times.get(stats.mode, BucketCounts())
        counts = so_far.plus(stats.step_time_s, TOKEN_BOUNDS_S)
        return {**self.step_times, stats.mode: counts}


def _sums(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip_longest(first, second, fillvalue=0))


def _together(
    first: Mapping[str, DrafterStats], second: Mapping[str, DrafterStats]
) -> Mapping[str, DrafterStats]:
    if not second:
        return first
    nothing = DrafterStats()
    return {n: first.get(n, nothing).plus(second.get(n, nothing)) for n in {**first, **second}}


def _added(first: Mapping[WhyPlain, int], second: Mapping[WhyPlain, int]) -> Mapping[WhyPlain, int]:
    reasons = [reason for reason in WhyPlain if reason in first or reason in second]
    return {reason: first.get(reason, 0) + second.get(reason, 0) for reason in reasons}

"""What a decision may look at: nothing that is not in here, time and chance included."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from policy.arms import PLAIN_ARM, Arm
from policy.pins import Pin
from policy.readings import MemoryReading


@dataclass(frozen=True, slots=True)
class StepSample:
    """One engine step.

    Attributes:
        arm: What the plan of the step asked for.
        num_decoding: Requests that decoded.
        num_draft_tokens: Draft tokens verified, over all of them.
        num_context_tokens: Mean tokens of those requests.
        num_other_tokens: Tokens computed for prompts, and once more for a drafter's context.
        num_emitted_tokens: Tokens that requests gained.
        num_preempted: Requests that lost their pages.
        step_time_s: Time of the step, seconds.
        graded: Draft tokens compared with what the target chose, by place; verified ones and those
            graded for free. A token behind a wrong one is not in here: nothing is known of it.
        accepted: Of those, the ones that were right.
        has_drafter_fault: The drafter raised.
        is_mixed: Another drafter's tokens were verified, too: its time is of no arm.
    """

    arm: Arm = PLAIN_ARM
    num_decoding: int = 0
    num_draft_tokens: int = 0
    num_context_tokens: int = 0
    num_other_tokens: int = 0
    num_emitted_tokens: int = 0
    num_preempted: int = 0
    step_time_s: float = 0.0
    graded: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    has_drafter_fault: bool = False
    is_mixed: bool = False


@dataclass(frozen=True, slots=True)
class RequestSignal:
    """One request that decodes.

    Attributes:
        request_id: Its id.
        ceiling: Most draft tokens its client allows; 0 is ``speculation: off``, None no ceiling.
        num_context_tokens: Its tokens.
        num_graded: Draft tokens of its own that were graded lately.
        num_accepted: Of those, the ones that were right.
        num_steps_ungraded: Steps since the last of them.
    """

    request_id: str
    ceiling: int | None = None
    num_context_tokens: int = 0
    num_graded: int = 0
    num_accepted: int = 0
    num_steps_ungraded: int = 0


@dataclass(frozen=True, slots=True)
class DrafterCondition:
    """What a drafter would need before it can draft.

    Attributes:
        is_loaded: Its weights and its context's pages are there.
        catch_up_s: Time to compute what its context lacks, over all requests, seconds.
        sync_s: Time per step to keep its context up to date without drafting, seconds.
    """

    is_loaded: bool = True
    catch_up_s: float = 0.0
    sync_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PoolSignal:
    """The page pool.

    Attributes:
        num_pages: All pages.
        num_pages_used: Those that requests own. Pages that only a prefix cache keeps are free.
        page_size: Tokens per page.
    """

    num_pages: int = 1
    num_pages_used: int = 0
    page_size: int = 16

    @property
    def occupancy(self) -> float:
        """Share of pages that requests own."""
        return self.num_pages_used / max(1, self.num_pages)


@dataclass(frozen=True, slots=True)
class Signals:
    """What was measured since the last decision.

    Attributes:
        now_s: The time, on a clock that never goes back, seconds.
        draw: A uniform number in [0, 1), the decision's only chance.
        num_decoding: Requests that decode now.
        num_waiting: Requests that wait.
        num_admissible: Most of them that could start now.
        num_prefill_tokens: Tokens of prompts in a step, lately.
        num_context_tokens: Mean tokens of the requests that decode.
        steps: The steps since the last decision.
        requests: The requests that decode; those left out have no ceiling and no history.
        drafters: What each drafter would need; one left out needs nothing.
        pool: The page pool.
        reading: Device memory, or what stands in for it.
        pin: The pin in force for this replica.
        restore_bytes: Memory that undoing the newest release would take; 0 where none was released.
    """

    now_s: float
    draw: float = 0.5
    num_decoding: int = 0
    num_waiting: int = 0
    num_admissible: int = 0
    num_prefill_tokens: int = 0
    num_context_tokens: int = 0
    steps: tuple[StepSample, ...] = ()
    requests: tuple[RequestSignal, ...] = ()
    drafters: Mapping[str, DrafterCondition] = field(default_factory=dict)
    pool: PoolSignal = field(default_factory=PoolSignal)
    reading: MemoryReading = field(default_factory=MemoryReading)
    pin: Pin | None = None
    restore_bytes: int = 0

    @property
    def num_coming(self) -> int:
        """Requests that wait and can start."""
        return min(self.num_waiting, self.num_admissible)

    @property
    def num_rows(self) -> int:
        """Requests that a plan is for: those that decode, or those about to where none does."""
        return self.num_decoding or self.num_coming

    def condition_of(self, drafter: str) -> DrafterCondition:
        """Return what a drafter would need."""
        return self.drafters.get(drafter, _NEEDS_NOTHING)


_NEEDS_NOTHING = DrafterCondition()

"""What one visit to the engine brought: the samples that figures are made of."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from dflash.stats import StepStats


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Drafts verified and kept.

    Attributes:
        num_verified: Sequences that had drafts verified, summed over steps.
        num_accepted: Drafts kept; extra tokens are not in this count.
        graded: Drafts verified at each position whose predecessors were all kept, first to last.
        accepted: Of those, the ones kept.
    """

    num_verified: int = 0
    num_accepted: int = 0
    graded: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()

    def __add__(self, other: "Acceptance") -> "Acceptance":
        return Acceptance(
            self.num_verified + other.num_verified,
            self.num_accepted + other.num_accepted,
            _summed(self.graded, other.graded),
            _summed(self.accepted, other.accepted),
        )

    @property
    def length(self) -> float:
        """Mean tokens emitted per verified sequence and step, the extra one included."""
        return 1.0 + self.num_accepted / self.num_verified

    @property
    def by_position(self) -> tuple[float, ...]:
        """Share kept at each position, of the drafts whose predecessors were all kept."""
        return tuple(
            kept / graded for kept, graded in zip(self.accepted, self.graded, strict=True) if graded
        )


def acceptance_of(steps: Iterable[StepStats]) -> Acceptance:
    """Return the sums over these steps."""
    parts = (
        Acceptance(
            step.num_drafting,
            step.num_accepted_tokens,
            step.verified_graded,
            step.verified_accepted,
        )
        for step in steps
    )
    return sum(parts, Acceptance())


def _summed(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(sum, zip_longest(left, right, fillvalue=0)))


@dataclass(frozen=True, slots=True)
class Load:
    """What one visit serves.

    Attributes:
        concurrency: Most requests at once.
        num_requests: Requests in all.
        max_tokens: Most tokens of an answer.
        temperature: Of every request.
    """

    concurrency: int
    num_requests: int
    max_tokens: int
    temperature: float


@dataclass(frozen=True, slots=True)
class Visit:
    """One arm serving one load once.

    Attributes:
        load: What was served.
        arm: Who served it.
        round_index: Visits of one round served the same prompts.
        seconds: From the first submission to the last token.
        token_ids: What each request was given, in the order of the prompts.
        acceptance: Drafts verified and kept.
        decode_step_s: Time of each step that decoded and computed no prompt, seconds.
        draft_s: Of those, the time spent in the drafter.
    """

    load: Load
    arm: str
    round_index: int
    seconds: float
    token_ids: tuple[tuple[int, ...], ...]
    acceptance: Acceptance
    decode_step_s: tuple[float, ...]
    draft_s: tuple[float, ...]

    @property
    def tok_s(self) -> float:
        """Output tokens per second over the whole visit, prompts' time included."""
        return sum(map(len, self.token_ids)) / self.seconds


def ids_that_differ(visits: Sequence[Visit], plain: str) -> int:
    """Return how many requests were given other ids than the plain arm gave in their round."""
    right = {(v.load, v.round_index): v.token_ids for v in visits if v.arm == plain}
    return sum(
        ours != theirs
        for visit in visits
        for ours, theirs in zip(visit.token_ids, right[visit.load, visit.round_index], strict=True)
    )

"""What one visit to the engine brought: the samples that figures are made of."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dflash.stats import Grades, StepStats


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What became of drafts.

    Attributes:
        num_drafting: Sequences that had drafts verified, summed over steps.
        num_accepted: Drafts emitted; extra tokens are not in this count.
        grades: Drafts right and wrong, by position.
    """

    num_drafting: int = 0
    num_accepted: int = 0
    grades: Grades = field(default_factory=Grades)

    def __add__(self, other: "Acceptance") -> "Acceptance":
        return Acceptance(
            self.num_drafting + other.num_drafting,
            self.num_accepted + other.num_accepted,
            self.grades.plus(other.grades),
        )

    @property
    def length(self) -> float:
        """Mean tokens emitted per verified sequence and step, the extra one included."""
        return 1.0 + self.num_accepted / self.num_drafting

    @property
    def by_position(self) -> tuple[float, ...]:
        """Share of right drafts at each position, where all before were right."""
        pairs = zip(self.grades.verified_accepted, self.grades.verified_graded, strict=True)
        return tuple(right / graded for right, graded in pairs if graded)


def acceptance_of(steps: Iterable[StepStats]) -> Acceptance:
    """Return the sums over these steps."""
    return sum(
        (
            Acceptance(did.num_drafting, did.num_accepted_tokens, did.grades)
            for step in steps
            for did in step.by_drafter.values()
        ),
        Acceptance(),
    )


@dataclass(frozen=True, slots=True)
class Load:
    """What one visit serves.

    Attributes:
        task: Where the prompts are from.
        concurrency: Most requests at once.
        num_requests: Requests in all.
        max_tokens: Most tokens of an answer.
        temperature: Of every request.
    """

    task: str
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

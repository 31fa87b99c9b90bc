"""What one step computes, and what that came to: the values between schedule and commit."""

from collections.abc import Mapping
from dataclasses import dataclass

from dflash.batch import Run
from dflash.grammar.mask import TokenMask
from dflash.plan import NO_DRAFTER
from dflash.sampling import Chosen
from dflash.sequence import Sequence
from dflash.stats import WhyPlain


@dataclass(frozen=True, slots=True)
class Turn:
    """One sequence's part of a step.

    Attributes:
        sequence: Whose.
        run: What the target computes: its next tokens, and after its newest one the draft tokens
            once there are some.
        num_drafts: Draft tokens it may have verified; once drafted, those at the end of the run.
        why_plain: Why a sequence that decodes has none.
        num_catch_up: Leading tokens of the run that the target computed before and a drafter's
            context lacks.
        drafter: Who drafts for it.
        tail: Draft tokens after those in the run, to be graded against what comes later.
        masks: What its grammar allows at each row of its logits, or why it cannot say; none where
            it has no grammar.
    """

    sequence: Sequence
    run: Run
    num_drafts: int = 0
    why_plain: WhyPlain | None = None
    num_catch_up: int = 0
    drafter: str = NO_DRAFTER
    tail: tuple[int, ...] = ()
    masks: tuple[TokenMask | Exception, ...] = ()

    @property
    def is_decoding(self) -> bool:
        """Whether one token of a sequence past its prompt is computed, draft tokens apart."""
        return self.num_drafts > 0 or self.why_plain is not None

    @property
    def drafts(self) -> tuple[int, ...]:
        """The draft tokens in the run."""
        return self.run.token_ids[len(self.run.token_ids) - self.num_drafts :]


@dataclass(frozen=True, slots=True)
class Schedule:
    """What one step computes: the only artefact of scheduling.

    Attributes:
        turns: In the order of their rows. One a sequence; two where one decodes while its context
            is caught up by a part.
        num_preempted: Sequences that lost their pages to older ones.
        num_cached_tokens: Tokens that need no computing because the prefix cache has them.
    """

    turns: tuple[Turn, ...]
    num_preempted: int
    num_cached_tokens: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a turn came to.

    Attributes:
        turn: The turn.
        chosen: Tokens the target chose, in order; none where the run does not reach the
            sequence's end.
        num_kept: Leading tokens of the run that stay; the others were draft tokens the target
            would not have chosen, or that come after its end.
        error: Why the request cannot go on after the chosen tokens, where it cannot.
        error_field: The request's own parameter at fault in that, where one is.
    """

    turn: Turn
    chosen: tuple[Chosen, ...] = ()
    num_kept: int = 0
    error: str | None = None
    error_field: str | None = None

    @property
    def num_accepted(self) -> int:
        """Draft tokens that were emitted."""
        num_extra = 1 if self.error is None else 0
        return len(self.chosen) - num_extra if self.turn.num_drafts else 0


@dataclass(frozen=True, slots=True)
class Effort:
    """What a drafter's part in a step came to.

    Attributes:
        time_s: What it took, seconds.
        fault: What the drafter raised; None where it did not.
    """

    time_s: float = 0.0
    fault: str | None = None

    def plus(self, later: "Effort") -> "Effort":
        """Return both parts in one; the first fault stands for both."""
        return Effort(self.time_s + later.time_s, self.fault or later.fault)


@dataclass(frozen=True, slots=True)
class Computed:
    """What became of a schedule before it is committed.

    Attributes:
        schedule: With the draft tokens in its runs.
        verdicts: One a turn, in order.
        efforts: What drafting and following came to, by drafter.
        plan_fault: Why the planner's plan was not carried out; None where it was.
        fault: What the device raised where the whole step failed.
    """

    schedule: Schedule
    verdicts: list[Verdict]
    efforts: Mapping[str, Effort]
    plan_fault: str | None
    fault: str | None

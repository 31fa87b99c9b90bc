"""What became of one HTTP request: the value that metrics, spans, lines and answers are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dflash.durations import BucketCounts
from dflash.request import SamplingParams


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A moment at which a request got another drafter.

    Attributes:
        at_s: Since the request arrived, seconds.
        drafter_from: Who drafted before; ``plain`` where nobody did.
        drafter_to: Who drafts from now on.
    """

    at_s: float
    drafter_from: str
    drafter_to: str


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """How a request was decoded, over all of its choices.

    Attributes:
        steps: Steps in which it decoded, by who drafted; those without a draft token are ``plain``.
        num_draft_tokens: Draft tokens verified.
        acceptance_histogram: Steps that verified drafts, by how many they kept; index 0 is none.
        draft_length_min: Fewest draft tokens verified in one of them; 0 where there was none.
        draft_length_max: Most of them.
        inactive_reasons: Steps without a draft token, by reason.
        num_plan_changes: Times another drafter was asked, or none any more.
        plan_changes: The first of those.
    """

    steps: Mapping[str, int] = field(default_factory=dict)
    num_draft_tokens: int = 0
    acceptance_histogram: tuple[int, ...] = ()
    draft_length_min: int = 0
    draft_length_max: int = 0
    inactive_reasons: Mapping[str, int] = field(default_factory=dict)
    num_plan_changes: int = 0
    plan_changes: tuple[PlanChange, ...] = ()

    @property
    def num_drafting_steps(self) -> int:
        """Steps that verified draft tokens."""
        return sum(self.acceptance_histogram)

    @property
    def num_accepted_tokens(self) -> int:
        """Draft tokens kept. Extra tokens are not in this count."""
        return sum(kept * steps for kept, steps in enumerate(self.acceptance_histogram))

    @property
    def acceptance_length(self) -> float | None:
        """Mean tokens emitted per verify step, extra token included; None if none verified."""
        steps = self.num_drafting_steps
        return 1.0 + self.num_accepted_tokens / steps if steps else None

    @property
    def accepted_per_position(self) -> tuple[int, ...]:
        """Steps that kept the draft token at each position; index 0 is the first."""
        histogram = self.acceptance_histogram
        return tuple(sum(histogram[kept:]) for kept in range(1, len(histogram)))


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asked for, without a word of its text.

    Attributes:
        request_id: Its id.
        model: Name of the model.
        is_stream: Whether the answer is streamed.
        num_choices: Choices asked for.
        max_tokens: Most tokens of each.
        num_prompt_tokens: Tokens of its prompt, or of all of them.
        sampling: How tokens are chosen.
        seed: Of the noise.
        max_draft_length: Most draft tokens it allows; None is any.
    """

    request_id: str
    model: str
    is_stream: bool
    num_choices: int
    max_tokens: int
    num_prompt_tokens: int
    sampling: SamplingParams
    seed: int
    max_draft_length: int | None


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One HTTP request, over or nearly so. All times are of the ingress; durations in seconds.

    Attributes:
        route: Path of the route, such as ``/v1/chat/completions``; never what a client made up.
        status: HTTP status; 0 before there is one.
        arrived_at_s: When it arrived, since the epoch.
        duration_s: From its arrival to its end.
        asked: What it asked for; None where it was refused before that was known.
        error_code: Code of the error that it ended with; None where it ended well.
        finish_reasons: How its choices ended, in order; ``abort`` where its client left.
        num_cached_tokens: Prompt tokens taken from the prefix cache.
        num_completion_tokens: Tokens of its answer, over all choices.
        queue_time_s: How long it waited in the engine's queue; None where it never began.
        queue_end_s: From its arrival to the end of that.
        first_token_s: From its arrival to its first token; None where there was none.
        last_token_s: From its arrival to its last token.
        num_chunks: Messages that brought tokens.
        gaps: Time between two such messages of one choice, bounds as `TOKEN_BOUNDS_S`.
        drafts: How it was decoded.
        replicas: Engine replicas that took it; more than one where it was resumed.
        trace_id: Of its trace, 32 hex digits; empty where it is not traced.
    """

    route: str
    status: int
    arrived_at_s: float
    duration_s: float
    asked: Asked | None
    error_code: str | None
    finish_reasons: tuple[str, ...]
    num_cached_tokens: int
    num_completion_tokens: int
    queue_time_s: float | None
    queue_end_s: float | None
    first_token_s: float | None
    last_token_s: float | None
    num_chunks: int
    gaps: BucketCounts
    drafts: DraftCounts
    replicas: tuple[str, ...]
    trace_id: str

    @property
    def time_per_output_token_s(self) -> float | None:
        """Mean time of a token after the first of its choice; None where there was no second."""
        if self.asked is None or self.first_token_s is None or self.last_token_s is None:
            return None
        num_choices = self.asked.num_choices
        num_later = self.num_completion_tokens - num_choices
        if num_later <= 0:
            return None
        return (self.last_token_s - self.first_token_s) * num_choices / num_later

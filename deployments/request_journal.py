"""What one HTTP request comes to while it runs; its record is taken from here."""

import time
from collections import Counter
from collections.abc import Callable, Sequence

from starlette.requests import HTTPConnection
from starlette.types import Scope

from deployments.openai.errors import ApiError
from deployments.request_record import Asked, DraftCounts, PlanChange, RequestRecord
from deployments.wire import Step
from dflash.durations import TOKEN_BOUNDS_S, Histogram
from dflash.plan import NO_DRAFTER
from dflash.request import Decoded, GenerateRequest
from dflash.stats import WhyPlain

_MAX_PLAN_CHANGES = 32
_STATE_KEY = "request_journal"
# Reasons that say whom the plan asked. The others are about one step, or one request's length.
_PLANNED = (WhyPlain.PLAN.value, WhyPlain.REQUEST.value)


class RequestJournal:
    """Takes down what happens to one HTTP request. Used on the event loop only.

    Attributes:
        asked: What it asks for, once that is known.
        arrived_at_s: When it arrived, since the epoch, seconds.
        trace_id: Of its trace; empty where it has none.
        carrier: Names its span to other processes; empty where it has none.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin with its arrival.

        Args:
            clock: Seconds that never go back.
            wall_clock: Seconds since the epoch.
        """
        self.asked: Asked | None = None
        self.arrived_at_s = wall_clock()
        self.trace_id = ""
        self.carrier = ""
        self._clock = clock
        self._began_s = clock()
        self._error_code: str | None = None
        self._finish_reasons: dict[int, str] = {}
        self._num_tokens: Counter[int] = Counter()
        self._taken_s = 0.0
        self._num_cached = 0
        self._queue_time_s: float | None = None
        self._queue_end_s: float | None = None
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._chunk_at_s: dict[int, float] = {}
        self._num_chunks = 0
        self._gaps = Histogram(TOKEN_BOUNDS_S)
        self._drafts = _Drafts()
        self._replicas: dict[str, None] = {}

    @classmethod
    def of(cls, connection: HTTPConnection) -> "RequestJournal":
        """Return the journal of a request that the app answers."""
        return getattr(connection.state, _STATE_KEY)

    def attach(self, scope: Scope) -> None:
        """Let whoever answers the request find this journal."""
        scope.setdefault("state", {})[_STATE_KEY] = self

    def begin(
        self, requests: Sequence[GenerateRequest], n: int, model: str, *, stream: bool
    ) -> None:
        """Enter what is asked for.

        Args:
            requests: The engine's request of each choice.
            n: How many of them answer one prompt.
            model: The name its client gave.
            stream: Whether the answer is streamed.
        """
        request = requests[0]
        self.asked = Asked(
            request_id=request.request_id,
            model=model,
            is_stream=stream,
            num_choices=len(requests),
            max_tokens=request.max_tokens,
            num_prompt_tokens=sum(len(each.prompt_token_ids) for each in requests[::n]),
            sampling=request.sampling,
            seed=request.seed,
            max_draft_length=request.max_draft_length,
        )

    def note(self, step: Step, choice: int = 0) -> None:
        """Enter one message of the engine, when it comes."""
        now_s = self._clock() - self._began_s
        if step.replica:
            self._taken_s = self._taken_s or now_s
            self._replicas[step.replica] = None
        if step.queue_time_s is not None and self._queue_end_s is None:
            self._note_queue_end(step.queue_time_s, now_s)
        self._num_cached = max(self._num_cached, step.num_cached_tokens)
        if step.token_ids:
            self._note_chunk(len(step.token_ids), now_s, choice)
        for decoded in step.decoded:
            self._drafts.add(decoded, choice, now_s)

    def finish(self, reason: str, num_tokens: int | None = None, choice: int = 0) -> None:
        """Enter that a choice ended well.

        Args:
            reason: Why it ended, as its client reads it.
            num_tokens: Tokens of its answer, where its messages hold more, after a stop string.
            choice: Which one.
        """
        self._finish_reasons[choice] = reason
        if num_tokens is not None:
            self._num_tokens[choice] = num_tokens

    def fail(self, error: ApiError) -> None:
        """Enter that the request ended with an error."""
        self._error_code = str(error.code)

    def record(self, route: str = "", status: int = 0) -> RequestRecord:
        """Return what there is now."""
        reasons = tuple(self._finish_reasons[choice] for choice in sorted(self._finish_reasons))
        num_choices = 0 if self.asked is None else self.asked.num_choices
        if self._error_code is None and self._replicas and len(reasons) < num_choices:
            reasons = (*reasons, *["abort"] * (num_choices - len(reasons)))
        most_cached = 0 if self.asked is None else self.asked.num_prompt_tokens
        return RequestRecord(
            route=route,
            status=status,
            arrived_at_s=self.arrived_at_s,
            duration_s=self._clock() - self._began_s,
            asked=self.asked,
            error_code=self._error_code,
            finish_reasons=reasons,
            # A resumed request finds its own tokens cached, too.
            num_cached_tokens=min(self._num_cached, most_cached),
            num_completion_tokens=self._num_tokens.total(),
            queue_time_s=self._queue_time_s,
            queue_end_s=self._queue_end_s,
            first_token_s=self._first_s,
            last_token_s=self._last_s,
            num_chunks=self._num_chunks,
            gaps=self._gaps.counts(),
            drafts=self._drafts.counts(),
            replicas=tuple(self._replicas),
            trace_id=self.trace_id,
        )

    def _note_queue_end(self, queue_time_s: float, now_s: float) -> None:
        """Enter a wait that is told with the first token; only its length is known here."""
        self._queue_time_s = queue_time_s
        self._queue_end_s = min(now_s, self._taken_s + queue_time_s)

    def _note_chunk(self, num_tokens: int, now_s: float, choice: int) -> None:
        before_s = self._chunk_at_s.get(choice)
        if before_s is not None:
            self._gaps.observe(now_s - before_s)
        if self._first_s is None:
            self._first_s = now_s
        self._chunk_at_s[choice] = self._last_s = now_s
        self._num_chunks += 1
        self._num_tokens[choice] += num_tokens


class _Drafts:
    """Counts of decode steps as they come."""

    def __init__(self) -> None:
        self._steps: Counter[str] = Counter()
        self._kept: list[int] = []
        self._num_draft_tokens = 0
        self._shortest = self._longest = 0
        self._reasons: Counter[str] = Counter()
        self._asked: dict[int, str] = {}
        self._num_changes = 0
        self._changes: list[PlanChange] = []

    def add(self, decoded: Decoded, choice: int, now_s: float) -> None:
        drafter, num_drafted, num_accepted, why_plain = decoded
        if num_drafted:
            self._steps[drafter] += 1
            self._num_draft_tokens += num_drafted
            if num_accepted >= len(self._kept):
                self._kept.extend([0] * (num_accepted + 1 - len(self._kept)))
            self._kept[num_accepted] += 1
            self._shortest = min(self._shortest or num_drafted, num_drafted)
            self._longest = max(self._longest, num_drafted)
        else:
            self._steps[NO_DRAFTER] += 1
            self._reasons[why_plain or WhyPlain.PLAN.value] += 1
        if num_drafted or why_plain in _PLANNED:
            self._note_asked(drafter, choice, now_s)

    def counts(self) -> DraftCounts:
        return DraftCounts(
            steps=dict(self._steps),
            num_draft_tokens=self._num_draft_tokens,
            acceptance_histogram=tuple(self._kept),
            draft_length_min=self._shortest,
            draft_length_max=self._longest,
            inactive_reasons=dict(self._reasons),
            num_plan_changes=self._num_changes,
            plan_changes=tuple(self._changes),
        )

    def _note_asked(self, drafter: str, choice: int, now_s: float) -> None:
        before = self._asked.get(choice)
        if before == drafter:
            return
        self._asked[choice] = drafter
        if before is None:
            return
        self._num_changes += 1
        if len(self._changes) < _MAX_PLAN_CHANGES:
            self._changes.append(PlanChange(now_s, before, drafter))

"""One step after another: schedule, forward, choose, commit."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from dflash.admission import check_queue, check_request
from dflash.batch import batch_from_runs
from dflash.config import EngineLimits
from dflash.errors import EngineError, RequestError
from dflash.exactness import ExactnessReport
from dflash.kv_cache import KVCache
from dflash.request import FinishReason, GenerateRequest, TokenOutput
from dflash.sampling import choose
from dflash.schedule import Schedule, Turn, Verdict
from dflash.scheduler import Scheduler
from dflash.sequence import Sequence
from dflash.stats import EngineCounts, StepStats
from dflash.target import Target, TargetFacts

_logger = logging.getLogger(__name__)
_STEP_FAILED = "the engine failed while computing this request; retry it"


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step brought.

    Attributes:
        outputs: One message for each request that gained tokens or ended.
        stats: The step in counts.
        fault: What the device raised where the whole step failed.
    """

    outputs: tuple[TokenOutput, ...]
    stats: StepStats
    fault: str | None = None


class Engine:
    """Token ids in, token ids out, for one target. One thread calls it; `EngineLoop` is that one.

    Attributes:
        facts: Facts of the target.
        model_folder: Where the model's tokenizer lies; None where there is none.
        exactness: What is promised about the numbers; None where nobody asked.
        kv_cache: The books of its pages.
        scheduler: Who computes what.
    """

    def __init__(
        self,
        target: Target,
        limits: EngineLimits,
        *,
        model_folder: Path | None = None,
        exactness: ExactnessReport | None = None,
        prefix_caching: bool = True,
        observe: Callable[[Schedule, Tensor], None] | None = None,
    ) -> None:
        """Start with empty books.

        Args:
            target: What computes the steps.
            limits: Bounds of a step and of the queue.
            model_folder: Where the model's tokenizer lies.
            exactness: What the target promises.
            prefix_caching: Whether full pages are kept and shared.
            observe: Sees each step's schedule and logits before tokens are chosen: for audits.
        """
        self.facts: TargetFacts = target.facts
        self.model_folder = model_folder
        self.exactness = exactness
        self.kv_cache = KVCache(
            self.facts.num_pages, self.facts.page_size, prefix_caching=prefix_caching
        )
        self.scheduler = Scheduler(self.kv_cache, limits)
        self._target = target
        self._observe = observe
        self._live: dict[str, Sequence] = {}

    @property
    def limits(self) -> EngineLimits:
        """The bounds in force."""
        return self.scheduler.limits

    @property
    def has_work(self) -> bool:
        """Whether a step would compute anything."""
        return bool(self._live)

    @property
    def counts(self) -> EngineCounts:
        """What it holds now."""
        return EngineCounts(
            num_running=self.scheduler.num_running,
            num_waiting=self.scheduler.num_waiting,
            num_waiting_tokens=self.scheduler.num_waiting_tokens,
            num_pages_used=self.kv_cache.num_owned,
            num_pages_cached=self.kv_cache.num_cached,
            num_pages_total=self.kv_cache.num_pages,
        )

    def submit(self, request: GenerateRequest) -> None:
        """Check a request and let it wait.

        Raises:
            RequestError: The target cannot serve it, or its id is in use.
            OverloadedError: Too many wait already.
        """
        check_request(request, self.facts)
        check_queue(request, self.limits, self.counts)
        self.enqueue(request)

    def enqueue(self, request: GenerateRequest) -> None:
        """Let a request wait that the caller has checked.

        Raises:
            RequestError: Its id is in use.
        """
        if request.request_id in self._live:
            raise RequestError(
                f"request_id {request.request_id!r} is in use; give each live request its own",
                "request_id",
            )
        sequence = Sequence(request, self.facts.eos_token_ids)
        self._live[request.request_id] = sequence
        self.scheduler.add(sequence)

    def abort(self, request_id: str) -> TokenOutput | None:
        """End a request now and free its pages; return its last message, None if it is not live."""
        sequence = self._live.pop(request_id, None)
        if sequence is None:
            return None
        self.scheduler.remove(sequence)
        return sequence.last_words(FinishReason.ABORT)

    def set_limits(self, limits: EngineLimits) -> None:
        """Replace the bounds; those already running stay."""
        self.scheduler.limits = limits

    def step(self) -> StepResult:
        """Compute one schedule and return what each request gained."""
        started_s = time.perf_counter()
        schedule = self.scheduler.schedule()
        if not schedule.turns:
            return StepResult((), StepStats())
        with self.kv_cache.step():
            verdicts, fault = self._compute(schedule)
            outputs = self.scheduler.commit(verdicts)
        for output in outputs:
            if output.finish_reason is not None:
                del self._live[output.request_id]
        stats = _stats(schedule, outputs, time.perf_counter() - started_s)
        return StepResult(outputs, stats, fault)

    def check(self) -> None:
        """Prove the books.

        Raises:
            AccountingError: They do not add up.
        """
        self.scheduler.check()

    def _compute(self, schedule: Schedule) -> tuple[list[Verdict], str | None]:
        """Return what each turn came to; where the device fails, all fail, and why."""
        try:
            batch = batch_from_runs([turn.run for turn in schedule.turns])
            logits = self._target.forward(batch).logits
            if self._observe is not None:
                self._observe(schedule, logits)
            return _verdicts(schedule, logits), None
        except Exception as error:
            _logger.exception("a step of %d requests failed", len(schedule.turns))
            failed = [Verdict(turn, error=_STEP_FAILED) for turn in schedule.turns]
            return failed, f"{type(error).__name__}: {error}"


def _verdicts(schedule: Schedule, logits: Tensor) -> list[Verdict]:
    """Choose the next token of each sequence whose logits were asked for."""
    asking = [turn for turn in schedule.turns if turn.run.num_logits]
    chosen = iter(_choose(asking, logits))
    return [next(chosen) if turn.run.num_logits else Verdict(turn) for turn in schedule.turns]


def _choose(turns: list[Turn], logits: Tensor) -> list[Verdict]:
    """Choose for all rows at once, and where that fails for each alone.

    So one bad row ends one request; a row's choice does not depend on its neighbours.
    """
    rows = [turn.sequence.choice_row() for turn in turns]
    try:
        chosen = choose(logits, rows)
    except Exception as error:
        if len(turns) == 1:
            if not isinstance(error, EngineError):
                _logger.exception("a row could not be chosen")
                return [Verdict(turns[0], error=_STEP_FAILED)]
            return [Verdict(turns[0], error=str(error))]
        return [
            verdict
            for index, turn in enumerate(turns)
            for verdict in _choose([turn], logits[index : index + 1])
        ]
    return [Verdict(turn, (choice,)) for turn, choice in zip(turns, chosen, strict=True)]


def _stats(schedule: Schedule, outputs: tuple[TokenOutput, ...], step_time_s: float) -> StepStats:
    num_tokens = [len(turn.run.token_ids) for turn in schedule.turns]
    ends = [output.finish_reason for output in outputs if output.finish_reason is not None]
    num_failed = ends.count(FinishReason.ERROR)
    return StepStats(
        num_decoding=num_tokens.count(1),
        num_prefilling=len(num_tokens) - num_tokens.count(1),
        num_prefill_tokens=sum(num_tokens) - num_tokens.count(1),
        num_emitted_tokens=sum(len(output.token_ids) for output in outputs),
        num_finished=len(ends) - num_failed,
        num_failed=num_failed,
        num_preempted=schedule.num_preempted,
        num_cached_tokens=schedule.num_cached_tokens,
        step_time_s=step_time_s,
    )

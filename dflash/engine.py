"""One step after another: schedule, forward, choose, commit."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from dflash.admission import check_queue, check_request
from dflash.batch import batch_from_runs
from dflash.config import EngineLimits
from dflash.drafters.base import Drafter
from dflash.errors import OUT_OF_MEMORY, RequestError, is_out_of_memory
from dflash.exactness import ExactnessReport
from dflash.grading import grade
from dflash.grammar.compiler import GrammarCompiler
from dflash.grammar.matcher import Matcher
from dflash.grammar.text import Grammar
from dflash.grammar.turns import under_grammars
from dflash.grants import Grants
from dflash.kv_cache import KVCache
from dflash.ladder import Ladder
from dflash.plan import FixedPlanner, Planner, PlanSignals
from dflash.planning import Planned, Planning
from dflash.request import FinishReason, GenerateRequest, TokenOutput
from dflash.schedule import Computed, Schedule, Verdict
from dflash.scheduler import Scheduler
from dflash.sequence import Sequence
from dflash.speculation_report import SpeculationReport
from dflash.stats import EngineCounts, StepStats
from dflash.step_counts import count_step
from dflash.target import Target, TargetFacts
from dflash.verify import STEP_FAILED, verify

_logger = logging.getLogger(__name__)


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
        grammars: Compiles grammars for its vocabulary; None where there is none.
        exactness: What is promised about the numbers; None where nobody asked.
        speculation: Whether it drafts, and why not; None where nobody asked.
        kv_cache: The books of its pages.
        scheduler: Who computes what.
    """

    def __init__(  # noqa: PLR0913 - all but two have a default and a name
        self,
        target: Target,
        limits: EngineLimits,
        *,
        drafters: Iterable[Drafter] = (),
        planner: Planner | None = None,
        model_folder: Path | None = None,
        grammars: GrammarCompiler | None = None,
        exactness: ExactnessReport | None = None,
        speculation: SpeculationReport | None = None,
        prefix_caching: bool = True,
        observe: Callable[[Schedule, Tensor], None] | None = None,
        audit: Callable[[list[Verdict], Tensor], None] | None = None,
    ) -> None:
        """Start with empty books.

        Args:
            target: What computes the steps.
            limits: Bounds of a step and of the queue.
            drafters: What can draft, each kind once; none decodes plainly.
            planner: Who drafts how far; None is nobody.
            model_folder: Where the model's tokenizer lies.
            grammars: Compiles grammars for its vocabulary; None serves none.
            exactness: What the target promises.
            speculation: What was found out about drafting.
            prefix_caching: Whether full pages are kept and shared.
            observe: Sees each step's schedule and logits before tokens are chosen.
            audit: Sees each step's verdicts and logits before anything is committed.

        Raises:
            ConfigError: Two drafters are of one kind.
        """
        self.facts: TargetFacts = target.facts
        self.model_folder = model_folder
        self.grammars = grammars
        self.exactness = exactness
        self.speculation = speculation
        self.kv_cache = KVCache(
            self.facts.num_pages, self.facts.page_size, prefix_caching=prefix_caching
        )
        drafters = tuple(drafters)
        grants = Grants(self.kv_cache, [drafter.facts for drafter in drafters])
        self.scheduler = Scheduler(self.kv_cache, limits, grants)
        self._target = target
        self._ladder = Ladder(drafters, grants, self.facts.vocab_size)
        self._planning = Planning(planner or FixedPlanner(), frozenset(grants.rungs))
        self._last = StepStats()
        self._observe = observe
        self._audit = audit
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
        self.enqueue(request, self.matcher(request.grammar))

    def matcher(self, grammar: Grammar | None) -> Matcher | None:
        """Return a matcher of a request's grammar, None for none. May be called from any thread.

        Raises:
            RequestError: It cannot be compiled for this model.
        """
        if grammar is None:
            return None
        if self.grammars is None:
            raise RequestError(
                f"{grammar.field} cannot be served: this engine has no tokenizer", grammar.field
            )
        return self.grammars.matcher(grammar)

    def enqueue(self, request: GenerateRequest, matcher: Matcher | None = None) -> None:
        """Let a request wait that the caller has checked.

        Args:
            request: The request.
            matcher: Of its grammar, where it has one.

        Raises:
            RequestError: Its id is in use.
        """
        if request.request_id in self._live:
            raise RequestError(
                f"request_id {request.request_id!r} is in use; give each live request its own",
                "request_id",
            )
        sequence = Sequence(request, self.facts.eos_token_ids, matcher)
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

    def set_planner(self, planner: Planner) -> None:
        """Let another planner decide from the next step on."""
        self._planning.hand_over(planner)

    def step(self) -> StepResult:
        """Compute one schedule and return what each request gained."""
        started_s = time.perf_counter()
        planned = self._plan()
        schedule = self.scheduler.schedule(planned.plan)
        if not schedule.turns:
            return StepResult((), StepStats())
        with self.kv_cache.step():
            computed = self._compute(schedule, planned)
            grades = grade(computed.verdicts, self._ladder.num_places)
            outputs = self.scheduler.commit(computed.verdicts)
        for output in outputs:
            if output.finish_reason is not None:
                del self._live[output.request_id]
        self._last = count_step(computed, outputs, grades, time.perf_counter() - started_s)
        return StepResult(outputs, self._last, computed.fault)

    def look_around(self) -> None:
        """Ask the planner though nothing is to be computed: memory may have to be given back."""
        if not self._live:
            self._plan()

    def check(self) -> None:
        """Prove the books.

        Raises:
            AccountingError: They do not add up.
        """
        self.scheduler.check()

    def _plan(self) -> Planned:
        """Return the plan from now on, its releases carried out."""
        scheduler = self.scheduler
        signals = PlanSignals(
            self.counts,
            scheduler.decoding,
            self._last,
            scheduler.num_behind,
            scheduler.limits.max_num_seqs,
            self.facts.page_size,
            self._ladder.absent,
        )
        planned = self._planning.plan(signals)
        if planned.fault is None:
            for name in self._ladder.hold(planned.plan.released):
                scheduler.forget(name)
        return planned

    def _compute(self, schedule: Schedule, planned: Planned) -> Computed:
        """Return what each turn came to; where the device fails, all fail, and why."""
        ladder, plan, fault = self._ladder, planned.plan, None
        drafted = ladder.propose(schedule, plan.num_graded)
        schedule, efforts = under_grammars(drafted.schedule), drafted.efforts
        turns = schedule.turns
        try:
            batch = batch_from_runs([turn.run for turn in turns])
            output = self._target.forward(batch, ladder.taps(sorted(plan.warm)))
            if self._observe is not None:
                self._observe(schedule, output.logits)
            verdicts = verify(turns, output.logits)
            if self._audit is not None:
                self._audit(verdicts, output.logits)
        except Exception as error:
            _logger.exception("a step of %d requests failed", len(turns))
            told = OUT_OF_MEMORY if is_out_of_memory(error) else STEP_FAILED
            verdicts = [Verdict(turn, error=told) for turn in turns]
            fault = f"{type(error).__name__}: {error}"
        else:
            fed = ladder.feed(plan, verdicts, output.hidden)
            efforts = drafted.with_followed(fed)
        return Computed(schedule, verdicts, efforts, planned.fault, fault)

"""Requests served together by one engine, and everything taken down."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from benchmarks.rigs.shuffled import ShuffledScheduler
from benchmarks.rigs.transcript import Transcript
from dflash.config import EngineLimits
from dflash.drafters.base import Drafter
from dflash.engine import Engine
from dflash.grammar.compiler import GrammarCompiler
from dflash.plan import Planner
from dflash.request import GenerateRequest
from dflash.schedule import Verdict
from dflash.stats import StepStats
from dflash.target import Target

LIMITS = EngineLimits(max_num_seqs=64, max_num_batched_tokens=512)


class StepFailedError(Exception):
    """A model failed in a step; the message says what it raised."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How requests are served.

    Attributes:
        limits: Bounds of a step.
        before_step: Called before each step, to change the limits.
        shuffle_seed: Puts the rows of each step in random order where given.
        visits: Serve the same requests this many times with the prefix cache on, and take the
            last visit down; 0 is one visit without it.
        drafters: What can draft.
        planner: Who drafts how far; None is nobody.
        grammars: Compiles what requests must match.
        prepare: Called with the engine before anything is submitted.
    """

    limits: EngineLimits = LIMITS
    before_step: Callable[[Engine], object] = lambda _engine: None
    shuffle_seed: int | None = None
    visits: int = 0
    drafters: Sequence[Drafter] = ()
    planner: Planner | None = None
    grammars: GrammarCompiler | None = None
    prepare: Callable[[Engine], object] = lambda _engine: None


@dataclass(frozen=True, slots=True)
class Served:
    """One arm's transcript, and what happened on the way.

    Attributes:
        transcript: Logits and ids.
        events: How often each thing happened in the visit taken down; see `_count`.
    """

    transcript: Transcript
    events: Counter[str]


def served(
    target: Target,
    requests: Sequence[GenerateRequest],
    manner: Manner | None = None,
    audit: Callable[[Sequence[Verdict], Tensor], object] = lambda _verdicts, _logits: None,
) -> Served:
    """Serve requests together, all submitted at once, and take everything down.

    Args:
        target: The target; its ``facts.num_pages`` is the size of the pool.
        requests: Submitted in this order.
        manner: How; None for all at once without a draft.
        audit: Sees verdicts and logits of each step, beside the transcript.

    Raises:
        StepFailedError: The target failed.
        AccountingError: The books are wrong at the end.
    """
    manner = manner or Manner()
    transcript = Transcript()
    events: Counter[str] = Counter()

    def take_down(verdicts: Sequence[Verdict], logits: Tensor) -> None:
        transcript.audit(verdicts, logits)
        audit(verdicts, logits)
        events["chunks"] += sum(
            not verdict.turn.run.num_logits and not verdict.turn.num_catch_up
            for verdict in verdicts
        )

    engine = _engine(target, manner, take_down)
    for _ in range(max(1, manner.visits)):
        transcript = Transcript(emitted={request.request_id: [] for request in requests})
        events.clear()
        for request in requests:
            engine.submit(request)
        while engine.has_work:
            manner.before_step(engine)
            result = engine.step()
            if result.fault is not None:
                raise StepFailedError(result.fault)
            _count(events, result.stats)
            for output in result.outputs:
                transcript.emitted[output.request_id].extend(output.token_ids)
    engine.check()
    return Served(transcript, events)


def _engine(
    target: Target, manner: Manner, audit: Callable[[Sequence[Verdict], Tensor], None]
) -> Engine:
    engine = Engine(
        target,
        manner.limits,
        prefix_caching=manner.visits > 0,
        drafters=manner.drafters,
        planner=manner.planner,
        grammars=manner.grammars,
        audit=audit,
    )
    if manner.shuffle_seed is not None:
        engine.scheduler = ShuffledScheduler(
            engine.kv_cache, manner.limits, manner.shuffle_seed, engine.scheduler.grants
        )
    manner.prepare(engine)
    return engine


def _count(events: Counter[str], stats: StepStats) -> None:
    """Add what happened in a step."""
    events["preempted"] += stats.num_preempted
    events["cached_tokens"] += stats.num_cached_tokens
    events["drafted"] += stats.num_draft_tokens
    events["accepted"] += stats.num_accepted_tokens
    events["rejected"] += stats.num_draft_tokens - stats.num_accepted_tokens
    events["catch_up"] += stats.num_catch_up_tokens
    for name, did in stats.by_drafter.items():
        events["graded_free"] += sum(did.grades.free_graded)
        events[f"accepted_by_{name}"] += did.num_accepted_tokens
        events[f"drafted_by_{name}"] += did.num_draft_tokens
    events["drafter_faults"] += stats.drafter_fault is not None

"""Ways to serve the same requests: what the exactness benchmark compares with each one alone."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from benchmarks.rigs.shuffled import ShuffledScheduler
from benchmarks.rigs.transcript import Transcript
from dflash.batch import Run, batch_from_runs
from dflash.config import EngineLimits
from dflash.engine import Engine
from dflash.request import GenerateRequest
from dflash.runner import Runner
from dflash.schedule import Verdict

_LIMITS = EngineLimits(max_num_seqs=64, max_num_batched_tokens=512)
_MAX_VERIFY = 8


@dataclass(frozen=True, slots=True)
class Served:
    """One arm's transcript, and what happened on the way.

    Attributes:
        transcript: Logits and ids.
        num_preempted: Preemptions.
        num_cached_tokens: Prompt tokens that came from the prefix cache.
        num_chunks: Steps in which a prompt was computed in part.
    """

    transcript: Transcript
    num_preempted: int = 0
    num_cached_tokens: int = 0
    num_chunks: int = 0


def served(
    runner: Runner,
    requests: Sequence[GenerateRequest],
    *,
    limits: EngineLimits = _LIMITS,
    before_step: Callable[[Engine], None] = lambda _engine: None,
    shuffle_seed: int | None = None,
    visits: int = 0,
) -> Served:
    """Serve requests together, all submitted at once, and take everything down.

    Args:
        runner: The target; its ``facts.num_pages`` is the size of the pool.
        requests: Submitted in this order.
        limits: Bounds of a step.
        before_step: Called before each step, to change the limits.
        shuffle_seed: Puts the rows of each step in random order where given.
        visits: Serve the same requests this many times with the prefix cache on, and take the
            last visit down; 0 is one visit without it.
    """
    transcript = Transcript()
    counts: Counter[str] = Counter()

    def audit(verdicts: Sequence[Verdict], logits: Tensor) -> None:
        transcript.audit(verdicts, logits)
        counts["num_chunks"] += sum(not verdict.chosen for verdict in verdicts)

    engine = Engine(
        runner,
        limits,
        prefix_caching=visits > 0,
        audit=audit,
    )
    if shuffle_seed is not None:
        engine.scheduler = ShuffledScheduler(engine.kv_cache, limits, shuffle_seed)
    for _ in range(max(1, visits)):
        transcript = Transcript(emitted={request.request_id: [] for request in requests})
        counts.clear()
        for request in requests:
            engine.submit(request)
        while engine.has_work:
            before_step(engine)
            result = engine.step()
            if result.fault is not None:
                raise RuntimeError(f"a step failed: {result.fault}")
            counts["num_preempted"] += result.stats.num_preempted
            counts["num_cached_tokens"] += result.stats.num_cached_tokens
            for output in result.outputs:
                transcript.emitted[output.request_id].extend(output.token_ids)
    engine.check()
    return Served(transcript, **counts)


def alone(runner: Runner, requests: Sequence[GenerateRequest]) -> Served:
    """Serve each request by itself: the reference."""
    whole = Transcript()
    for request in requests:
        one = served(runner, [request]).transcript
        whole.rows |= one.rows
        whole.emitted |= one.emitted
    return Served(whole)


def in_batches(runner: Runner, requests: Sequence[GenerateRequest], size: int) -> Served:
    """Serve at most ``size`` requests at once; as one ends the next joins the others."""
    limits = replace(_LIMITS, max_num_seqs=size)
    return served(runner, requests, limits=limits, shuffle_seed=size)


def with_random_chunks(runner: Runner, requests: Sequence[GenerateRequest], seed: int) -> Served:
    """Change the token budget before every step, so that prompts are cut anywhere."""
    draw = random.Random(seed)

    def change(engine: Engine) -> None:
        num_seqs = draw.randint(1, 9)
        budget = num_seqs + draw.choice((0, 1, 3, 17, 64))
        engine.set_limits(replace(_LIMITS, max_num_seqs=num_seqs, max_num_batched_tokens=budget))

    return served(runner, requests, before_step=change, shuffle_seed=seed)


def with_preemption(runner: Runner, requests: Sequence[GenerateRequest]) -> Served:
    """Serve from a pool that holds little more than the longest request."""
    longest = max(len(r.prompt_token_ids) + r.max_tokens for r in requests)
    num_pages = longest // runner.facts.page_size + 5
    small = replace(runner, facts=replace(runner.facts, num_pages=num_pages))
    return served(small, requests, shuffle_seed=0)


def with_prefix_cache(runner: Runner, requests: Sequence[GenerateRequest], visits: int) -> Served:
    """Serve with the prefix cache on: cold in the first visit, warm in the second."""
    limits = replace(_LIMITS, max_num_seqs=5, max_num_batched_tokens=64)
    return served(runner, requests, limits=limits, visits=visits)


def verified(
    runner: Runner, requests: Sequence[GenerateRequest], reference: Transcript, seed: int
) -> Served:
    """Compute each request's known ids again in verify runs of random length, mixed at random.

    The run lengths of one step differ, one in four is a single token, and the last prompt token
    often stands alone in its chunk.
    """
    draw = random.Random(seed)
    transcript = Transcript(emitted=dict(reference.emitted))
    pending = [_Known(request, reference.emitted[request.request_id]) for request in requests]
    num_pages = runner.facts.num_pages
    free = list(range(num_pages))
    draw.shuffle(free)
    for known in pending:
        need = len(known.ids) // runner.facts.page_size + 1
        known.pages, free = free[:need], free[need:]
    while pending:
        turn = draw.sample(pending, min(len(pending), draw.randint(1, 9)))
        runs = [known.next_run(draw) for known in turn]
        logits = runner.forward(batch_from_runs(runs)).logits.numpy()
        row = 0
        for known, run in zip(turn, runs, strict=True):
            end = run.start + len(run.token_ids)
            for position in range(end - run.num_logits, end):
                transcript.add((known.key, position), logits[row])
                row += 1
            known.computed = end
        pending = [known for known in pending if known.computed < len(known.ids)]
    return Served(transcript)


class _Known:
    """A request whose ids are known, computed again piece by piece."""

    def __init__(self, request: GenerateRequest, emitted: Sequence[int]) -> None:
        self.key = request.request_id
        self.num_prompt = len(request.prompt_token_ids)
        self.ids = (*request.prompt_token_ids, *emitted[: request.max_tokens - 1])
        self.computed = 0
        self.pages: list[int] = []

    def next_run(self, draw: random.Random) -> Run:
        start, last_of_prompt = self.computed, self.num_prompt - 1
        if start < last_of_prompt:
            left = last_of_prompt - start
            count = left if draw.random() < 0.5 else draw.randint(1, left)
            num_logits = 0
        else:
            left = len(self.ids) - start
            count = num_logits = (
                1 if draw.random() < 0.25 else min(left, draw.randint(2, _MAX_VERIFY))
            )
        return Run(self.ids[start : start + count], start, self.pages, num_logits)

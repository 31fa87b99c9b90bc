"""Ways to serve the same requests: what the exactness benchmark compares with each one alone."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.rigs.served import LIMITS, Manner, Served, served
from benchmarks.rigs.transcript import Transcript
from dflash.batch import Run, batch_from_runs
from dflash.engine import Engine
from dflash.request import GenerateRequest
from dflash.runner import Runner
from dflash.target import Target

_MAX_VERIFY = 8


def alone(target: Target, requests: Sequence[GenerateRequest]) -> Served:
    """Serve each request by itself: the reference."""
    whole = Served(Transcript(), Counter())
    for request in requests:
        one = served(target, [request])
        whole.transcript.rows |= one.transcript.rows
        whole.transcript.emitted |= one.transcript.emitted
        whole.events.update(one.events)
    return whole


def in_batches(target: Target, requests: Sequence[GenerateRequest], size: int) -> Served:
    """Serve at most ``size`` requests at once; as one ends the next joins the others."""
    limits = replace(LIMITS, max_num_seqs=size)
    return served(target, requests, Manner(limits, shuffle_seed=size))


def with_random_chunks(target: Target, requests: Sequence[GenerateRequest], seed: int) -> Served:
    """Change the token budget before every step, so that prompts are cut anywhere."""
    draw = random.Random(seed)

    def change(engine: Engine) -> None:
        num_seqs = draw.randint(1, 9)
        budget = num_seqs + draw.choice((0, 1, 3, 17, 64))
        engine.set_limits(replace(LIMITS, max_num_seqs=num_seqs, max_num_batched_tokens=budget))

    return served(target, requests, Manner(before_step=change, shuffle_seed=seed))


def with_preemption(runner: Runner, requests: Sequence[GenerateRequest]) -> Served:
    """Serve from a pool that holds little more than the longest request."""
    longest = max(len(r.prompt_token_ids) + r.max_tokens for r in requests)
    num_pages = longest // runner.facts.page_size + 5
    small = replace(runner, facts=replace(runner.facts, num_pages=num_pages))
    return served(small, requests, Manner(shuffle_seed=0))


def with_prefix_cache(target: Target, requests: Sequence[GenerateRequest], visits: int) -> Served:
    """Serve with the prefix cache on: cold in the first visit, warm in the second."""
    limits = replace(LIMITS, max_num_seqs=5, max_num_batched_tokens=64)
    return served(target, requests, Manner(limits, visits=visits))


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
    return Served(transcript, Counter())


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

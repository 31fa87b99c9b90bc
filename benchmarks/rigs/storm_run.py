"""Random requests thrown at an engine, with every step audited."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.planners import Alternating, RandomModes, reach_of
from benchmarks.rigs.random_requests import RandomRequests
from benchmarks.rigs.registered_drafters import REGISTERED
from benchmarks.rigs.script_drafter import (
    ContextError,
    Script,
    ScriptDrafter,
    all_right,
    eos_at,
    failing,
    none,
    random_wrong,
    right_of,
    right_up_to,
)
from benchmarks.rigs.serial import Answer, serial_answer
from benchmarks.rigs.shuffled import ShuffledScheduler
from benchmarks.rigs.spelling import ANY_OBJECT, RECORD, compiler_of, spelling_tokenizer
from benchmarks.rigs.unquiet_policy import UnquietPolicy
from dflash.config import EngineLimits
from dflash.engine import Engine, StepResult
from dflash.request import FinishReason, TokenLogprobs
from dflash.stats import StepStats, WhyPlain
from dflash.target import Target

# A little more than the longest request needs: two of them must fight for pages.
NUM_PAGES = 24
# A storm in which one of these did not happen has tested nothing of it.
MUST_HAPPEN = (
    *("aborts", "preemptions", "cached_tokens", "chunks", "mixed_steps"),
    *(
        "grammars",
        "accepted",
        "rejected",
        "catch_up",
        "whole_blocks",
        "graded_free",
        "drafter_faults",
    ),
    *("mixed_drafts", *(f"accepted_by_{name}" for name in REGISTERED)),
    *(f"plain_{why}" for why in WhyPlain),
)
_NUM_NAMES = 48
_MAX_LIVE = 24


@dataclass(slots=True)
class Given:
    """What one request has been given so far, and what it must be given."""

    right: Answer
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None

    @property
    def differs(self) -> bool:
        """Whether this is not the right answer, or no beginning of it after an abort."""
        right = self.right
        if self.finish_reason is FinishReason.ABORT:
            count = len(self.token_ids)
            return (
                tuple(self.token_ids) != right.token_ids[:count]
                or tuple(self.logprobs) != right.logprobs[:count]
            )
        answer = Answer(
            tuple(self.token_ids), tuple(self.logprobs), self.finish_reason, self.stop_token_id
        )
        return answer != right


class Storm:
    """One engine on `HashLM` in a tiny pool, and all that befalls it.

    In each step requests arrive under names used before, some are aborted, the limits, the plan
    and the drafter's script change, the rows are shuffled, free pages are poisoned, the books are
    proved, and every page is compared with what it held before. The drafter proves its own.

    Attributes:
        model: The target.
        drafters: A script in the place of every registered drafter.
        engine: The engine; a test may break it before `run`.
        counts: What happened, by name.
        pages_written_astray: Pages that changed in a step though no turn was to write them.
        contexts_wrong: Steps in which the drafter found another context than its rows'.
    """

    def __init__(self, seed: int, spoilt: Callable[[HashLM], Target] = lambda model: model) -> None:
        """Prepare a storm.

        Args:
            seed: Of everything that is drawn.
            spoilt: Makes of the model what the engine is given; itself where nothing is broken.
        """
        self.model = HashLM(num_pages=NUM_PAGES)
        self._answers: dict[tuple[int, int], tuple[int, ...]] = {}
        right = right_of(self._answers)
        self.drafters = [
            ScriptDrafter(self.model.facts, right, all_right, model=self.model, facts=each.script)
            for each in REGISTERED.values()
        ]
        grammars = compiler_of(spelling_tokenizer(self.model.facts.vocab_size), self.model.facts)
        reach = reach_of(self.drafters)
        modes, policy = RandomModes(reach, seed), UnquietPolicy(reach, seed)
        self.engine = Engine(
            spoilt(self.model),
            EngineLimits(),
            drafters=self.drafters,
            # The policy is careful: most of what a storm must see comes of those that are not.
            planner=Alternating([modes, modes, modes, policy], seed),
            grammars=grammars,
        )
        self.engine.scheduler = self.scheduler = ShuffledScheduler(
            self.engine.kv_cache, EngineLimits(), seed, self.engine.scheduler.grants
        )
        self.counts: Counter[str] = Counter()
        self.pages_written_astray = 0
        self.contexts_wrong = 0
        self._scripts = _scripts(self.model, seed)
        self._random = random.Random(seed)
        self._requests = RandomRequests(seed, self.model.facts.vocab_size, (RECORD, ANY_OBJECT))
        self._live: dict[str, Given] = {}
        self._ended: list[Given] = []

    def run(
        self, num_requests: int, on_ended: Callable[[int], object] = lambda count: None
    ) -> None:
        """Submit this many requests and step until all have ended."""
        num_submitted = 0
        while num_submitted < num_requests or self._live:
            room = min(_MAX_LIVE - len(self._live), num_requests - num_submitted)
            for _ in range(min(room, self._random.choice((0, 1, 4)))):
                self._submit()
                num_submitted += 1
            if self._live and self._random.random() < 0.02:
                self._abort(self._random.choice(sorted(self._live)))
            num_ended = len(self._ended)
            self._step()
            on_ended(len(self._ended) - num_ended)

    def run_alone(self, num_requests: int) -> None:
        """After the storm, serve requests one at a time from the cache that it left."""
        for _ in range(num_requests):
            self._submit()
            while self._live:
                self._step()

    @property
    def ids_differ(self) -> int:
        """How many requests were given anything else than serial decoding gives."""
        return sum(given.differs for given in self._ended)

    def _submit(self) -> None:
        free_names = [f"r{i}" for i in range(_NUM_NAMES) if f"r{i}" not in self._live]
        request = self._requests.draw(self._random.choice(free_names))
        right = serial_answer(self.model, request, self.engine.grammars)
        stop = () if right.stop_token_id is None else (right.stop_token_id,)
        self._answers[request.seed, request.choice] = (
            *request.prompt_token_ids,
            *right.token_ids,
            *stop,
        )
        self._live[request.request_id] = Given(right)
        self.engine.submit(request)
        self.counts["requests"] += 1
        self.counts["grammars"] += request.grammar is not None

    def _abort(self, request_id: str) -> None:
        last = self.engine.abort(request_id)
        if last is not None:
            self._live[request_id].finish_reason = last.finish_reason
            self._ended.append(self._live.pop(request_id))
            self.counts["aborts"] += 1

    def _step(self) -> None:
        max_num_seqs = self._random.choice((1, 4, 8, 16))
        self.engine.set_limits(
            EngineLimits(
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=self._random.randint(max_num_seqs, 160),
            )
        )
        for drafter in self.drafters:
            drafter.script = self._random.choice(self._scripts)
            drafter.fault = RuntimeError("no") if self._random.random() < 0.01 else None
        before = self.model.page_contents()
        result = self.engine.step()
        self._audit(before)
        self._record(result)
        self.engine.check()
        self.model.poison(self.engine.kv_cache.free_pages)

    def _audit(self, before: np.ndarray) -> None:
        changed = (self.model.page_contents() != before).any(axis=(1, 2))
        turns = self.scheduler.last.turns if self.scheduler.last else ()
        for turn in turns:
            first = (turn.run.start + turn.num_catch_up) // self.model.facts.page_size
            # Shared pages lie below the first one a run writes anew, so a change of them counts.
            changed[list(turn.run.page_table[first:])] = False
            is_chunk = len(turn.run.token_ids) > 1 and not turn.run.num_logits
            self.counts["chunks"] += is_chunk and not turn.num_catch_up
        self.pages_written_astray += int(changed.sum())

    def _record(self, result: StepResult) -> None:
        stats = result.stats
        self.counts["steps"] += 1
        self.counts["faults"] += result.fault is not None
        self.counts["preemptions"] += stats.num_preempted
        self.counts["cached_tokens"] += stats.num_cached_tokens
        self.counts["mixed_steps"] += bool(stats.num_decoding and stats.num_prefilling)
        self._record_drafts(stats)
        for output in result.outputs:
            given = self._live[output.request_id]
            given.token_ids.extend(output.token_ids)
            given.logprobs.extend(output.logprobs or ())
            if output.finish_reason is not None:
                given.finish_reason = output.finish_reason
                given.stop_token_id = output.stop_token_id
                self._ended.append(self._live.pop(output.request_id))
                self.counts[f"ended_{output.finish_reason}"] += 1

    def _record_drafts(self, stats: StepStats) -> None:
        self.counts["accepted"] += stats.num_accepted_tokens
        self.counts["rejected"] += stats.num_draft_tokens - stats.num_accepted_tokens
        self.counts["catch_up"] += stats.num_catch_up_tokens
        num_asked = sum(did.num_drafting > 0 for did in stats.by_drafter.values())
        self.counts["mixed_drafts"] += num_asked > 1
        for name, did in stats.by_drafter.items():
            self.counts[f"accepted_by_{name}"] += did.num_accepted_tokens
            self.counts["whole_blocks"] += did.grades.verified_accepted[-1]
            self.counts["graded_free"] += sum(did.grades.free_graded)
            if did.last_fault is not None:
                self.counts["drafter_faults"] += 1
                self.contexts_wrong += ContextError.__name__ in did.last_fault
        for why, count in stats.plain_rows.items():
            self.counts[f"plain_{why}"] += count


def _scripts(model: HashLM, seed: int) -> list[Script]:
    """Return what the drafter may be up to in a step, the likelier ones more than once."""
    vocab_size = model.facts.vocab_size
    stop = model.facts.eos_token_ids[0]
    return [
        *(random_wrong(0.3, vocab_size, seed + index) for index in range(8)),
        *(all_right for _ in range(6)),
        *(right_up_to(count, vocab_size) for count in (0, 1, 2, 4)),
        *(eos_at(index, stop) for index in (0, 3)),
        none,
        failing,
    ]

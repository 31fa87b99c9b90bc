"""How long steps take here: real steps of the real engine, before anyone waits for one."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from dflash.engine import Engine
from dflash.errors import ProfileError
from dflash.plan import PLAIN, Arm, DraftPlan, FixedPlanner
from dflash.request import GenerateRequest, SamplingParams
from dflash.stats import StepStats

SHORT_CONTEXT, LONG_CONTEXT = 128, 1024
"""Tokens of a request that decodes, in the two contexts a table knows where there is room."""
_NUM_ROUNDS = 5
# Steps of few rows are short, and there a wrong table costs most: they are measured several times.
_FEW_ROWS, _NUM_TIMES = 8, 3
# Long prompts take long to compute; what attention adds is linear in rows and tokens.
_MOST_LONG_ROWS = 8
# Prompts start shorter than the context they are measured for, since they grow; at most so far.
_GROWTH, _MOST_GROWTH = 48, 192
_MOST_PREFILL_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class StepTime:
    """The median time of some steps that were alike.

    Attributes:
        drafter: Whose context was kept; ``plain`` where nobody's was.
        draft_length: Draft tokens verified for each request; 0 where its context only followed.
        num_rows: Requests that decoded.
        num_context_tokens: Tokens of each of them.
        seconds: The median.
    """

    drafter: str
    draft_length: int
    num_rows: int
    num_context_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """What steps cost.

    Attributes:
        times: Each drafter, draft length, number of rows and context that was measured.
        prefill_s: Time that one more token of a prompt takes, seconds.
    """

    times: tuple[StepTime, ...]
    prefill_s: float


def row_counts(most: int) -> tuple[int, ...]:
    """Return the numbers of rows to measure: powers of two, and the most itself."""
    powers = [1 << power for power in range(most.bit_length()) if 1 << power < most]
    return (*powers, most)


def profile(
    engine: Engine,
    draft_lengths: Mapping[str, Sequence[int]],
    most_rows: int,
    on_progress: Callable[[float], None],
) -> Profile:
    """Measure an engine that serves nobody yet, and leave it idle.

    Args:
        engine: Idle. Its planner is replaced.
        draft_lengths: Draft lengths to measure, by drafter.
        most_rows: Most requests at once.
        on_progress: Told the share that is done.

    Raises:
        ProfileError: A step failed, or there is no room for even one short request.
    """
    short = min(SHORT_CONTEXT, engine.facts.max_model_len + _GROWTH - _MOST_GROWTH)
    if short <= _GROWTH:
        raise ProfileError(
            f"engine.max_model_len is {engine.facts.max_model_len}, and requests that are measured "
            f"grow to {_MOST_GROWTH + 1}; raise it"
        )
    most_rows = min(most_rows, engine.limits.max_num_seqs, _most_rows(engine, short))
    if most_rows == 0:
        raise ProfileError("the pages do not hold a request; raise engine.kv_cache.memory_gib")
    most_long = min(_MOST_LONG_ROWS, _most_rows(engine, LONG_CONTEXT))
    loads = [(rows, short) for rows in row_counts(most_rows)]
    # What longer contexts add shows beside the same number of rows with short ones.
    if comparable := [rows for rows, _ in loads if rows <= most_long]:
        loads.append((comparable[-1], LONG_CONTEXT))
    total = sum(rows * context for rows, context in loads)
    bench = _Bench(engine, draft_lengths)
    times: list[StepTime] = []
    done = 0
    for rows, context in loads:
        times += bench.measure(rows, context)
        done += rows * context
        on_progress(done / total)
    return Profile(tuple(times), bench.prefill_s)


def _most_rows(engine: Engine, num_context_tokens: int) -> int:
    most = num_context_tokens - _GROWTH + _MOST_GROWTH
    if engine.facts.max_model_len < most:
        return 0
    return engine.facts.num_pages // engine.kv_cache.num_pages_for(most)


class _Bench:
    """Requests that nobody reads."""

    def __init__(self, engine: Engine, draft_lengths: Mapping[str, Sequence[int]]) -> None:
        self._engine = engine
        self._arms = {
            name: (PLAIN, *(Arm(name, length) for length in lengths))
            for name, lengths in draft_lengths.items()
        }
        self._num_requests = 0
        self._live: list[str] = []
        self._num_prefilled, self._prefill_s = 0, 0.0

    @property
    def prefill_s(self) -> float:
        """Time of a prompt's token, seconds."""
        return self._prefill_s / max(1, self._num_prefilled)

    def measure(self, num_rows: int, num_context_tokens: int) -> list[StepTime]:
        """Return the times of every drafter and draft length under one load."""
        seconds: dict[tuple[str, int], list[float]] = {}
        is_short = num_rows <= _FEW_ROWS and num_context_tokens < LONG_CONTEXT
        for _ in range(_NUM_TIMES if is_short else 1):
            try:
                self._start(num_rows, num_context_tokens - _GROWTH)
                self._time_rounds(seconds)
            finally:
                while self._live:
                    self._engine.abort(self._live.pop())
        return [
            StepTime(drafter, length, num_rows, num_context_tokens, median(found))
            for (drafter, length), found in seconds.items()
        ]

    def _time_rounds(self, seconds: dict[tuple[str, int], list[float]]) -> None:
        """Time every arm in turn, several times: a machine that drifts favours none."""
        for _ in range(_NUM_ROUNDS):
            self._time(DraftPlan(), ("plain", 0), seconds)
            for name, arms in self._arms.items():
                self._catch_up(name)
                for arm in arms:
                    plan = DraftPlan(arm, warm=frozenset({name}))
                    self._time(plan, (name, arm.draft_length), seconds)

    def _catch_up(self, name: str) -> None:
        """Let a drafter's context catch up with what was emitted since its last turn."""
        while self._step(DraftPlan(warm=frozenset({name}))).num_catch_up_tokens:
            pass

    def _time(
        self, plan: DraftPlan, key: tuple[str, int], seconds: dict[tuple[str, int], list[float]]
    ) -> None:
        seconds.setdefault(key, []).append(self._step(plan).step_time_s)

    def _step(self, plan: DraftPlan) -> StepStats:
        self._engine.set_planner(FixedPlanner(plan))
        result = self._engine.step()
        fault = result.fault or result.stats.plan_fault or result.stats.drafter_fault
        if fault is not None:
            raise ProfileError(f"a step failed while step times were measured: {fault}")
        if result.stats.step_time_s == 0.0:
            raise ProfileError(
                "requests that were measured came to their end; raise engine.max_model_len, which "
                f"is {self._engine.facts.max_model_len}"
            )
        return result.stats

    def _start(self, num_rows: int, num_prompt_tokens: int) -> None:
        """Let requests decode."""
        facts = self._engine.facts
        for _ in range(num_rows):
            self._num_requests += 1
            name = f"profile-{self._num_requests}"
            draw = random.Random(self._num_requests)
            prompt = tuple(draw.randrange(facts.vocab_size) for _ in range(num_prompt_tokens))
            self._engine.enqueue(
                GenerateRequest(
                    name,
                    prompt,
                    max_tokens=facts.max_model_len - num_prompt_tokens,
                    sampling=SamplingParams(temperature=0.0, ignore_eos=True),
                )
            )
            self._live.append(name)
        for _ in range(_MOST_PREFILL_STEPS):
            stats = self._step(DraftPlan(warm=frozenset(self._arms)))
            if not stats.num_prefilling:
                return
            self._num_prefilled += stats.num_prefill_tokens
            self._prefill_s += stats.step_time_s
        raise ProfileError("prompts did not come to an end while step times were measured")

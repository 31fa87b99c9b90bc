"""One engine, held at one load after another for a while each."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.rigs.served import StepFailedError
from dflash.engine import Engine, StepResult
from dflash.request import GenerateRequest, SamplingParams


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of time under one load.

    Attributes:
        num_requests: Requests at once; where one ends another begins.
        task: Where their prompts are from.
        seconds: How long.
    """

    num_requests: int
    task: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Ride:
    """What came of all phases.

    Attributes:
        num_tokens: Emitted within them.
        tpot_s: Time per token after the first, of each request that ended, seconds.
        ttft_s: Time to the first token of each request, seconds.
        by_phase: Tokens of each phase.
    """

    num_tokens: int
    tpot_s: tuple[float, ...]
    ttft_s: tuple[float, ...]
    by_phase: tuple[int, ...]


@dataclass(slots=True)
class _Live:
    asked_s: float
    first_s: float | None = None
    num_tokens: int = 0


class Rider:
    """Keeps an engine at a load."""

    def __init__(
        self,
        engine: Engine,
        prompts: Mapping[str, Iterator[Sequence[int]]],
        max_tokens: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Take an idle engine.

        Args:
            engine: Asked.
            prompts: Endless, by task.
            max_tokens: Most tokens of an answer.
            clock: Seconds.
        """
        self._engine, self._prompts = engine, prompts
        self._max_tokens, self._clock = max_tokens, clock
        self._live: dict[str, _Live] = {}
        self._num_asked = 0
        self._tpot_s: list[float] = []
        self._ttft_s: list[float] = []

    def ride(self, phases: Sequence[Phase], on_phase: Callable[[], object]) -> Ride:
        """Go through the phases; what is unfinished at the end is aborted.

        Raises:
            StepFailedError: Target or drafter failed: what is left is no speed of theirs.
        """
        by_phase = []
        for phase in phases:
            by_phase.append(self._through(phase))
            on_phase()
        for name in self._live:
            self._engine.abort(name)
        return Ride(sum(by_phase), tuple(self._tpot_s), tuple(self._ttft_s), tuple(by_phase))

    def _through(self, phase: Phase) -> int:
        end_s = self._clock() + phase.seconds
        num_tokens = 0
        while self._clock() < end_s:
            while len(self._live) < phase.num_requests:
                self._ask(phase.task)
            result = self._engine.step()
            fault = result.fault or result.stats.drafter_fault or result.stats.plan_fault
            if fault is not None:
                raise StepFailedError(fault)
            num_tokens += result.stats.num_emitted_tokens
            self._enter(result)
        return num_tokens

    def _ask(self, task: str) -> None:
        name = str(self._num_asked)
        self._num_asked += 1
        prompt = tuple(next(self._prompts[task]))
        sampling = SamplingParams(temperature=0.0)
        self._live[name] = _Live(self._clock())
        self._engine.submit(GenerateRequest(name, prompt, self._max_tokens, sampling))

    def _enter(self, result: StepResult) -> None:
        now_s = self._clock()
        for output in result.outputs:
            live = self._live[output.request_id]
            if live.first_s is None and output.token_ids:
                live.first_s = now_s
                self._ttft_s.append(now_s - live.asked_s)
            live.num_tokens += len(output.token_ids)
            if output.finish_reason is None:
                continue
            if live.first_s is not None and live.num_tokens > 1:
                self._tpot_s.append((now_s - live.first_s) / (live.num_tokens - 1))
            del self._live[output.request_id]

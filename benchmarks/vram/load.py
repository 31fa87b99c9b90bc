"""The same few requests over and over, and whether each was answered as it is alone."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from dflash.config import EngineLimits
from dflash.engine import Engine
from dflash.request import FinishReason, GenerateRequest, SamplingParams
from dflash.target import Target


def requests_for(prompts: Sequence[Sequence[int]], max_tokens: int) -> list[GenerateRequest]:
    """Return a request for each prompt, every second one sampled, no two neighbours as long.

    Requests of one length would end together, and begin together.

    Args:
        prompts: Token ids.
        max_tokens: Most tokens of an answer, which no id ends before its budget.
    """
    return [
        GenerateRequest(
            str(index),
            tuple(prompt),
            max_tokens * (4 - index % 3) // 4,
            SamplingParams(temperature=float(index % 2), ignore_eos=True),
            seed=index,
        )
        for index, prompt in enumerate(prompts)
    ]


def alone(target: Target, requests: Sequence[GenerateRequest]) -> list[tuple[int, ...]]:
    """Return each request's ids in plain decoding, with nobody beside it."""
    answers = []
    for request in requests:
        engine = Engine(target, EngineLimits(max_num_seqs=1), prefix_caching=False)
        engine.submit(request)
        ids: list[int] = []
        while engine.has_work:
            for output in engine.step().outputs:
                ids.extend(output.token_ids)
        answers.append(tuple(ids))
    return answers


class SteadyLoad:
    """Keeps an engine at a number of requests.

    Attributes:
        num_ended: Requests that have ended.
        num_failed: Those of them that ended otherwise than by their length.
        num_differing_ids: Ids that are not those of the request alone.
        faults: What target, drafters or planner raised, each kind of sentence once.
    """

    def __init__(
        self,
        engine: Engine,
        requests: Sequence[GenerateRequest],
        expected: Sequence[tuple[int, ...]],
        num_live: int,
    ) -> None:
        """Take an idle engine.

        Args:
            engine: Asked.
            requests: Asked in turn, for ever.
            expected: The ids of each.
            num_live: Requests at once.
        """
        self.num_ended = self.num_failed = self.num_differing_ids = 0
        self.faults: set[str] = set()
        self._engine, self._requests, self._expected = engine, requests, expected
        self._num_live, self._numbers = num_live, count()
        self._live: dict[str, list[int]] = {}

    def step(self) -> None:
        """Ask where there is room, and compute a step."""
        while len(self._live) < self._num_live:
            self._ask(next(self._numbers))
        self._advance()

    def drain(self) -> None:
        """Ask nothing more, and wait for the answers."""
        while self._engine.has_work:
            self._advance()

    def _ask(self, number: int) -> None:
        request = self._requests[number % len(self._requests)]
        self._live[str(number)] = []
        self._engine.submit(replace(request, request_id=str(number)))

    def _advance(self) -> None:
        result = self._engine.step()
        stats = result.stats
        for fault in (result.fault, stats.drafter_fault, stats.plan_fault):
            if fault is not None:
                self.faults.add(fault)
        for output in result.outputs:
            self._live[output.request_id].extend(output.token_ids)
            if output.finish_reason is not None:
                self._end(output.request_id, output.finish_reason)

    def _end(self, name: str, reason: FinishReason) -> None:
        found = self._live.pop(name)
        self.num_ended += 1
        self.num_failed += reason is not FinishReason.LENGTH
        expected = self._expected[int(name) % len(self._expected)]
        # What is missing at the end of a request that failed differs, too.
        same = sum(a == b for a, b in zip(found, expected, strict=False))
        self.num_differing_ids += max(len(found), len(expected)) - same

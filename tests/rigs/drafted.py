"""Requests, plans and sums for tests that draft on `HashLM`."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.serial import serial_answer
from dflash.config import EngineLimits
from dflash.plan import PLAIN, Arm, DraftPlan, FixedPlanner, PlanSignals
from dflash.request import GenerateRequest, SamplingParams, Speculation

VOCAB = 251
PREFIX = tuple(range(1, 81))
COLD = DraftPlan()
FOLLOWED = frozenset({"script"})
WARM = DraftPlan(warm=FOLLOWED)


def arm_of(draft_length: int, drafter: str = "script") -> Arm:
    return Arm(drafter, draft_length) if draft_length else PLAIN


def drafting(draft_length: int, num_graded: int = 0, **by_request: int) -> DraftPlan:
    arms = {name: arm_of(length) for name, length in by_request.items()}
    return DraftPlan(arm_of(draft_length), arms, FOLLOWED, num_graded=num_graded)


def always(draft_length: int, num_graded: int = 0) -> FixedPlanner:
    return FixedPlanner(drafting(draft_length, num_graded))


class Plans:
    """These plans one after the other; the last one stays."""

    def __init__(self, plans: Sequence[DraftPlan]) -> None:
        self._plans: Iterator[DraftPlan] = chain(plans, repeat(plans[-1]))

    def plan(self, signals: PlanSignals) -> DraftPlan:
        return next(self._plans)


def limits(max_num_seqs: int, max_num_batched_tokens: int) -> EngineLimits:
    return EngineLimits(max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)


def request(
    request_id: str, prompt: Sequence[int] = PREFIX[:20], max_tokens: int = 40, **sampling
) -> GenerateRequest:
    """Return a request with a seed of its own, greedy and without an end unless told otherwise."""
    params = SamplingParams(**{"temperature": 0.0, "ignore_eos": True, **sampling})
    seed = int.from_bytes(request_id.encode()[:6], "big")
    return GenerateRequest(request_id, tuple(prompt), max_tokens, params, seed)


def assert_right(drive: Drive, *requests: GenerateRequest) -> None:
    for each in requests:
        assert drive.answer(each.request_id) == serial_answer(
            drive.model, each, drive.engine.grammars
        ), each
    faults = [result.stats.drafter_fault for result in drive.results]
    assert not any(faults), next(fault for fault in faults if fault)


def speculation(drive: Drive, request_id: str) -> Speculation:
    said = drive.outputs[request_id][-1].speculation
    assert said is not None
    return said


def total(drive: Drive, name: str) -> int:
    """Return the sum of one of the counts over all steps so far."""
    return sum(getattr(result.stats, name) for result in drive.results)


def places(drive: Drive, name: str) -> list[int]:
    """Return the sums of one of the counts by draft place."""
    did = [result.stats.by_drafter.get("script") for result in drive.results]
    counts: Iterable[tuple[int, ...]] = (getattr(each.grades, name) for each in did if each)
    return [sum(column) for column in zip(*(c for c in counts if c), strict=True)]

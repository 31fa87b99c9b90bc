"""Whatever is drafted, planned, cut short or aborted: answers are those of plain decoding alone."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.random_requests import RandomRequests
from benchmarks.rigs.script_drafter import (
    Script,
    all_right,
    all_wrong,
    eos_at,
    none,
    random_wrong,
    right_up_to,
)
from benchmarks.rigs.serial import serial_answer
from dflash.plan import PLAIN, Arm, DraftPlan, PlanSignals
from dflash.request import FinishReason, GenerateRequest
from tests.rigs.drafted import VOCAB, always, limits, total

BOTH = frozenset({"a", "b"})


def scripts(seed: int) -> tuple[Script, ...]:
    return (
        all_right,
        all_wrong(VOCAB),
        right_up_to(3, VOCAB),
        none,
        eos_at(2, 0),
        random_wrong(0.3, VOCAB, seed),
    )


class Anything:
    """Another plan in every step: drafters and lengths by row, cold or warm, some to their ends."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def plan(self, signals: PlanSignals) -> DraftPlan:
        draw = self._random
        if draw.random() < 0.3:
            return DraftPlan(warm=draw.choice((BOTH, BOTH, frozenset({"b"}), frozenset())))
        warm = BOTH if draw.random() < 0.8 else frozenset({"a"})
        by_request = {each.request_id: self._arm(warm) for each in signals.decoding}
        return DraftPlan(self._arm(warm), by_request, warm, num_graded=draw.randint(0, 3))

    def _arm(self, warm: frozenset[str]) -> Arm:
        length = self._random.randint(0, 9)
        return Arm(self._random.choice(sorted(warm)), length) if length else PLAIN


class Mixed(Drive):
    """A pool in which requests fight for pages, its limits and its drafter's mood ever new."""

    def __init__(self, seed: int, num_pages: int) -> None:
        self.draw = random.Random(seed)
        self.scripts = scripts(seed)
        both = dict.fromkeys(sorted(BOTH), self.propose)
        super().__init__(num_pages=num_pages, script=both, planner=Anything(seed))

    def propose(self, row, right: tuple[int, ...]) -> tuple[int, ...]:
        return self.draw.choice(self.scripts)(row, right)

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            num_seqs = self.draw.randint(1, 8)
            self.engine.set_limits(limits(num_seqs, num_seqs + self.draw.choice((0, 3, 20, 90))))
            super().step()

    def differs(self, request: GenerateRequest) -> bool:
        """Whether a request was given anything but the right answer, or a beginning of it."""
        given, right = self.answer(request.request_id), serial_answer(self.model, request)
        if given.finish_reason is FinishReason.ABORT:
            count = len(given.token_ids)
            return (given.token_ids, given.logprobs) != (
                right.token_ids[:count],
                right.logprobs[:count],
            )
        return given != right


@given(seed=st.integers(0, 1 << 20), num_pages=st.integers(23, 48), aborts=st.integers(0, 2))
@settings(max_examples=25)
def test_no_draft_no_plan_and_no_neighbour_changes_an_answer(
    seed: int, num_pages: int, aborts: int
):
    source = RandomRequests(seed, VOCAB)
    requests = [source.draw(f"r{index}") for index in range(7)]
    drive = Mixed(seed, num_pages)
    for each in requests:
        drive.submit(each)
        drive.step(drive.draw.choice((0, 1, 5)))
    for each in drive.draw.sample(requests, aborts):
        drive.abort(each.request_id)
    drive.finish()
    assert not [each for each in requests if drive.differs(each)]
    assert not [result for result in drive.results if result.fault or result.stats.drafter_fault]
    assert drive.engine.kv_cache.num_owned == 0


def test_such_histories_hold_all_that_they_are_to_prove():
    drive = Mixed(seed=4, num_pages=23)
    source = RandomRequests(4, VOCAB)
    for index in range(120):
        drive.submit(source.draw(f"r{index}"))
        drive.step()
    drive.finish()
    for event in (
        "num_draft_tokens",
        "num_accepted_tokens",
        "num_catch_up_tokens",
        "num_preempted",
        "num_cached_tokens",
    ):
        assert total(drive, event) > 0, event
    reasons = {reason for result in drive.results for reason in result.stats.plain_rows}
    assert {str(reason) for reason in reasons} >= {
        "request",
        "plan",
        "budget",
        "pages",
        "catching_up",
        "nothing_proposed",
    }


@given(
    drafts=st.lists(st.lists(st.integers(0, VOCAB - 1), max_size=7), min_size=1, max_size=30),
    seed=st.integers(0, 1 << 20),
    width=st.integers(1, 7),
)
@settings(max_examples=40)
def test_drafts_of_any_ids_change_nothing(drafts: list[list[int]], seed: int, width: int):
    proposals = iter(drafts)

    def script(row, right: tuple[int, ...]) -> tuple[int, ...]:
        any_ids = next(proposals, [])
        return (*right[: len(any_ids) % 3], *any_ids)[: row.num_drafts]

    drive = Drive(script=script, planner=always(width))
    asked = RandomRequests(seed, VOCAB).draw("r")
    drive.submit(asked)
    drive.finish()
    assert drive.answer("r") == serial_answer(drive.model, asked)

"""Speculation switched, shrunk and rolled back in the middle of a request."""

import random

import numpy as np
import pytest

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.script_drafter import Script, all_right, random_wrong, right_up_to
from dflash.batch import Batch, Run, batch_from_runs
from dflash.request import FinishReason
from dflash.sequence import Sequence
from dflash.stats import WhyPlain
from dflash.target import TargetOutput
from tests.rigs.drafted import (
    COLD,
    PREFIX,
    VOCAB,
    WARM,
    Plans,
    always,
    assert_right,
    drafting,
    limits,
    request,
    speculation,
    total,
)


def live(drive: Drive) -> list[Sequence]:
    return [each for each in drive.engine.scheduler._running if each.table is not None]


def slots_of(sequence: Sequence, num_tokens: int) -> np.ndarray:
    index = np.arange(num_tokens)
    return np.array(sequence.table.pages)[index // 16] * 16 + index % 16


def assert_pages_hold_the_committed_tokens(drive: Drive) -> None:
    for sequence in live(drive):
        count = sequence.num_computed
        assert count == sequence.num_tokens - 1
        fresh = HashLM()
        fresh.forward(batch_from_runs([Run(tuple(sequence.token_ids[:count]), 0, range(32), 0)]))
        held = drive.model.tags(slots_of(sequence, count))
        assert (held == fresh.tags(np.arange(count))).all()


def randomly(seed: int, count: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.choice((0, 0, 1, 2, 4, 7)) for _ in range(count)]


@pytest.mark.parametrize("idle", [WARM, COLD])
@pytest.mark.parametrize(
    "lengths", [[7, 0] * 30, [4, 0, 0, 3] * 20, [0, 5, 0] * 20, randomly(1, 200), randomly(2, 200)]
)
def test_after_each_step_of_any_schedule_the_pages_hold_the_committed_tokens(lengths, idle):
    # The first step after a cold one catches up; only the second can draft.
    plans = [drafting(length) if length else idle for length in lengths for _ in range(2)]
    drive = Drive(script=random_wrong(0.3, VOCAB, seed=5), planner=Plans(plans))
    requests = [request("greedy"), request("sampled", PREFIX[:33], 60, temperature=1.0)]
    drive.submit(*requests)
    while drive.engine.has_work:
        drive.step()
        assert_pages_hold_the_committed_tokens(drive)
    assert_right(drive, *requests)
    assert total(drive, "num_accepted_tokens") > 0


def by_position(row, right: tuple[int, ...]) -> tuple[int, ...]:
    """Right but for ids at every fifth position, wherever the draft begins."""
    return tuple(
        (id_ + 1) % VOCAB if (row.position + place) % 5 == 0 else id_
        for place, id_ in enumerate(right)
    )


def accepted_by_anchor(drive: Drive) -> dict[int, int]:
    """Step to the end and return, for each anchor's position, the draft tokens accepted there."""
    accepted = {}
    while drive.engine.has_work:
        before = [each.num_tokens for each in live(drive)]
        drive.step()
        stats = drive.results[-1].stats
        if stats.num_drafting:
            accepted[before[0] - 1] = stats.num_accepted_tokens
    return accepted


@pytest.mark.parametrize("idle", [WARM, COLD])
def test_what_is_accepted_after_a_pause_is_what_would_have_been_without_it(idle):
    plans = [drafting(3)] * 8 + [idle] * 32 + [drafting(3)]
    paused = Drive(script=by_position, planner=Plans(plans))
    throughout = Drive(script=by_position, planner=always(3))
    asked = request("r", max_tokens=120)
    seen = []
    for drive in (paused, throughout):
        drive.submit(asked)
        seen.append(accepted_by_anchor(drive))
        assert_right(drive, asked)
    common = seen[0].keys() & seen[1].keys()
    assert len([anchor for anchor in common if anchor > 60]) >= 8
    assert all(seen[0][anchor] == seen[1][anchor] for anchor in common)
    assert speculation(paused, "r").num_plain == {
        WhyPlain.PLAN: 32,
        **({WhyPlain.CATCHING_UP: 1} if idle is COLD else {}),
    }


def test_a_warm_context_holds_every_committed_token_after_each_step():
    plans = [drafting(3)] * 8 + [WARM] * 32 + [drafting(3)]
    drive = Drive(script=by_position, planner=Plans(plans))
    drive.submit(request("r", max_tokens=90))
    while drive.engine.has_work:
        drive.step()
        for sequence in live(drive):
            held = sequence.followed_by["script"].num_context
            assert held == sequence.num_computed == sequence.num_tokens - 1
    assert total(drive, "num_catch_up_tokens") == 0


def test_ten_steps_at_length_0_ask_nobody_and_the_next_has_exactly_two_fresh_draft_tokens():
    plans = [WARM, *[WARM] * 10, drafting(2)]
    drive = Drive(script=all_right, planner=Plans(plans))
    drive.submit(request("r"))
    drive.step(11)
    assert (drive.drafter.num_proposals, total(drive, "num_draft_tokens")) == (0, 0)
    anchor = live(drive)[0].token_ids[-1]
    drive.step()
    (row,) = drive.drafter.asked
    assert (row.anchor, row.num_drafts) == (anchor, 2)
    assert drive.results[-1].stats.num_draft_tokens == 2


def test_a_request_that_the_budget_skips_drafts_from_its_newest_token_when_it_comes_again():
    drive = Drive(limits(4, 64), script=all_right, planner=always(3))
    requests = [request(f"r{index}") for index in range(4)]
    drive.submit(*requests)
    drive.step(2)
    for budget in (2, 2, 64, 3, 64, 64):
        drive.engine.set_limits(limits(2, budget))
        newest = {each.request.seed: each.token_ids[-1] for each in live(drive)}
        proposals = drive.drafter.num_proposals
        drive.step()
        if drive.drafter.num_proposals > proposals:
            for row in drive.drafter.asked:
                assert row.anchor == newest[row.seed]
    drive.finish()
    assert_right(drive, *requests)


@pytest.mark.parametrize("length", range(1, 8))
@pytest.mark.parametrize("before", [[], [COLD] * 3, [WARM] * 3, [drafting(7)] * 2])
def test_the_first_verify_run_after_a_prefill_or_a_switch_is_as_any_other(length: int, before):
    planner = Plans([*before, drafting(length)])
    drive = Drive(limits(2, 16), script=right_up_to(length - 1, VOCAB), planner=planner)
    asked = request("r", PREFIX[:33], 30)
    drive.submit(asked)
    while drive.engine.has_work:
        drive.step()
        if drive.has_begun("r"):
            assert_pages_hold_the_committed_tokens(drive)
    assert_right(drive, asked)


@pytest.mark.parametrize(("length", "count"), [(k, a) for k in range(1, 8) for a in range(k + 1)])
def test_after_each_round_target_and_drafter_hold_all_tokens_but_the_newest(length, count):
    drive = Drive(num_pages=30, script=right_up_to(count, VOCAB), planner=always(length))
    asked = request("r", max_tokens=min(50 * (count + 1), 400))
    drive.submit(asked)
    drive.step()
    rounds = 0
    while drive.engine.has_work and rounds < 50:
        drive.step()
        rounds += 1
        for sequence in live(drive):
            emitted = len(drive.answer("r").token_ids)
            held = sequence.followed_by["script"].num_context
            assert sequence.num_computed == held == 20 + emitted - 1
            assert len(sequence.table.pages) <= -(-sequence.num_tokens // 16)
        if drive.engine.has_work:
            assert drive.results[-1].stats.num_accepted_tokens == min(count, length)
    drive.finish()
    assert_right(drive, asked)


class FailsAt(HashLM):
    """Raises in the forward of one step."""

    def __init__(self) -> None:
        super().__init__()
        self.is_broken = False

    def forward(self, batch: Batch, taps: tuple[int, ...] = ()) -> TargetOutput:
        if self.is_broken:
            raise MemoryError("no room")
        return super().forward(batch, taps)


@pytest.mark.parametrize("where", ["propose", "forward", "observe", "abort"])
@pytest.mark.parametrize("step", range(2, 7))
def test_a_fault_near_the_budget_leaves_no_length_wrong_and_no_page_behind(where: str, step: int):
    drive = Drive(model=FailsAt(), script=right_up_to(2, VOCAB), planner=always(7))
    asked, other = request("r", max_tokens=13), request("other", PREFIX[10:50], 30)
    drive.submit(asked)
    drive.step(step - 1)
    script: Script = drive.drafter.script
    if where == "abort":
        drive.abort("r")
    elif where == "forward":
        drive.model.is_broken = True
    elif where == "observe":
        drive.drafter.fault = RuntimeError("lost")
    else:
        drive.drafter.script = lambda row, right: (VOCAB,)
    if drive.engine.has_work:
        drive.step()
    drive.model.is_broken, drive.drafter.fault, drive.drafter.script = False, None, script
    drive.submit(other)
    drive.finish()
    right = drive.answer("r").token_ids
    if where in ("propose", "observe"):
        assert len(right) == 13
    elif step < 6:
        assert drive.answer("r").finish_reason in (FinishReason.ERROR, FinishReason.ABORT)
    drive.results = []
    assert_right(drive, other)
    assert drive.engine.kv_cache.num_owned == 0


def test_rejected_rows_may_be_destroyed_after_each_round():
    drive = Drive(script=random_wrong(0.5, VOCAB, seed=3), planner=always(7))
    requests = [request("a"), request("b", PREFIX[:31], temperature=0.8)]
    drive.submit(*requests)
    while drive.engine.has_work:
        drive.step()
        for sequence in live(drive):
            end = len(sequence.table.pages) * 16
            rejected = slots_of(sequence, end)[sequence.num_computed :]
            drive.model._is_written[rejected] = False
            drive.drafter._positions[rejected] = -1
    assert_right(drive, *requests)
    assert 0 < total(drive, "num_accepted_tokens") < total(drive, "num_draft_tokens")

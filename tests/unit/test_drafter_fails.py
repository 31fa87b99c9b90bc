"""A drafter that fails in service: no request fails with it, and it is said what happened."""

import logging
from decimal import Decimal

import pytest

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.script_drafter import Script, all_right, failing
from benchmarks.rigs.serial import serial_answer
from dflash.drafters.base import DraftRow
from dflash.sequence import Sequence
from dflash.stats import LoopSnapshot, WhyPlain
from tests.rigs.drafted import (
    PREFIX,
    VOCAB,
    always,
    limits,
    request,
    speculation,
    total,
)


def right(drive: Drive, *names: str) -> bool:
    return all(drive.answer(each) == serial_answer(drive.model, request(each)) for each in names)


def context_of(sequence: Sequence) -> int:
    return sequence.followed_by["script"].num_context


def too_many(row: DraftRow, right: tuple[int, ...]) -> tuple[int, ...]:
    return (1,) * (row.num_drafts + 1)


def says(token_id: int) -> Script:
    return lambda row, right: (token_id,) * row.num_drafts


def floats(row: DraftRow, right: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(float(token_id) for token_id in right)


def decimals(row: DraftRow, right: tuple[int, ...]) -> tuple[Decimal, ...]:
    return tuple(Decimal(token_id) for token_id in right)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (failing, "RuntimeError: the script says fail"),
        (says(VOCAB), "draft token 251 came; the target's ids are 0 to 250"),
        (says(-1), "draft token -1 came"),
        (too_many, "4 draft tokens came, 3 were asked for"),
        (floats, "'float' object cannot be interpreted as an integer"),
        (decimals, "'decimal.Decimal' object cannot be interpreted as an integer"),
    ],
)
def test_a_drafter_that_proposes_nothing_usable_leaves_plain_decoding(script, words: str):
    drive = Drive(script=script, planner=always(3))
    drive.submit(request("a"), request("b"))
    drive.finish()
    assert right(drive, "a", "b")
    faults = [result.stats.drafter_fault for result in drive.results]
    assert words in next(fault for fault in faults if fault)
    plain = speculation(drive, "a").num_plain
    assert plain[WhyPlain.DRAFTER_FAILED] > 10
    assert not any(result.fault for result in drive.results)
    assert total(drive, "num_draft_tokens") == 0


def test_a_drafter_that_loses_its_context_leaves_plain_decoding():
    drive = Drive(script=all_right, planner=always(3))
    drive.drafter.fault = RuntimeError("device lost")
    drive.submit(request("a"), request("b"))
    drive.finish()
    assert right(drive, "a", "b")
    assert speculation(drive, "a").num_plain == {WhyPlain.CATCHING_UP: 39}
    assert drive.results[0].stats.drafter_fault == "observe: RuntimeError: device lost"


def test_a_prompt_longer_than_a_step_ends_though_its_context_is_lost_each_time():
    drive = Drive(limits(2, 32), script=all_right, planner=always(3))
    drive.drafter.fault = RuntimeError("device lost")
    asked = request("a", range(1, 101), max_tokens=200)
    drive.submit(asked)
    drive.finish()
    assert drive.answer("a") == serial_answer(drive.model, asked)
    # Tried again after 1, 2, 4 tokens and so on, with a step's 32 tokens at most.
    assert total(drive, "num_catch_up_tokens") < 32 * 9


@pytest.mark.parametrize("where", ["propose", "observe"])
def test_a_drafter_that_recovers_is_caught_up_and_drafts_again(where: str):
    drive = Drive(limits(4, 128), script=all_right, planner=always(3))
    names = ("a", "b")
    drive.submit(*(request(name, max_tokens=40) for name in names))
    drive.step(3)
    if where == "observe":
        drive.drafter.fault = RuntimeError("lost for a while")
    else:
        drive.drafter.script = failing
    drive.step(4)
    drive.drafter.fault, drive.drafter.script = None, all_right
    num_accepted = total(drive, "num_accepted_tokens")
    drive.finish()
    assert right(drive, *names)
    assert total(drive, "num_accepted_tokens") > num_accepted
    assert not any(result.stats.drafter_fault for result in drive.results[7:])
    # What a drafter proposes is one thing, what it has read of its sequences another.
    assert (total(drive, "num_catch_up_tokens") > 0) == (where == "observe")


def test_a_drafter_that_never_proposes_costs_nobody_the_context_of_a_prompt():
    drive = Drive(limits(4, 32), script=failing, planner=always(3))
    drive.submit(request("a"))
    drive.step(2)
    drive.submit(request("late", PREFIX))
    drive.finish()
    assert right(drive, "a")
    assert {result.stats.num_catch_up_tokens for result in drive.results} == {0}
    assert speculation(drive, "a").num_plain[WhyPlain.DRAFTER_FAILED] > 30


@pytest.mark.parametrize(
    ("junk", "words"),
    [((VOCAB,), "draft token 251"), ((1,) * 9, "9 draft tokens came"), (None, "NoneType")],
)
def test_junk_for_one_row_costs_the_others_nothing(junk, words: str):
    bad = request("bad")

    def script(row: DraftRow, right: tuple[int, ...]) -> tuple[int, ...]:
        return junk if row.seed == bad.seed else right

    drive = Drive(script=script, planner=always(3))
    drive.submit(request("good"), bad)
    drive.finish()
    assert right(drive, "good", "bad")
    assert any(words in (result.stats.drafter_fault or "") for result in drive.results)
    assert speculation(drive, "good").num_accepted == total(drive, "num_accepted_tokens") > 20
    assert WhyPlain.DRAFTER_FAILED not in speculation(drive, "good").num_plain
    assert speculation(drive, "bad").num_plain[WhyPlain.DRAFTER_FAILED] > 10


def test_context_that_is_lost_in_shared_pages_is_lost_for_all_who_share_them():
    drive = Drive(limits(4, 128), script=all_right)
    sharers = [
        request(name, (*PREFIX[:40], ord(name)), 90, temperature=0.5) for name in ("a", "b", "c")
    ]
    drive.submit(*sharers)
    drive.step(4)
    running = drive.engine.scheduler._running
    assert len({sequence.table.pages[0] for sequence in running}) == 1
    drive.engine.set_planner(always(3))
    drive.engine.set_limits(limits(4, 30))
    for fault in (None, RuntimeError("lost"), *[None] * 8):
        drive.drafter.fault = fault
        drive.step()
        if fault is not None:
            assert max(context_of(sequence) for sequence in running) < 40
    assert [context_of(sequence) - sequence.num_computed for sequence in running] == [0, 0, 0]
    drive.finish()
    for each in sharers:
        assert drive.answer(each.request_id) == serial_answer(drive.model, each)
    assert total(drive, "num_accepted_tokens") > 0


def test_rows_that_do_not_draft_are_not_touched_by_a_fault():
    drive = Drive(script=failing, planner=always(3))
    drive.submit(request("a"), request("b"))
    drive.step(2)
    late = request("late", PREFIX[:60])
    drive.submit(late)
    drive.step()
    assert drive.results[-1].stats.drafter_fault is not None
    assert drive.outputs["late"][0].token_ids
    drive.finish()
    assert drive.answer("late") == serial_answer(drive.model, late)
    assert {o.error for outputs in drive.outputs.values() for o in outputs} == {None}


def test_a_kind_of_fault_is_logged_once_and_each_one_counted(caplog):
    drive = Drive(script=failing, planner=always(3))
    snapshot = LoopSnapshot.of(drive.engine.counts)
    drive.submit(request("a"))
    with caplog.at_level(logging.ERROR):
        drive.step(5)
        drive.drafter.script = says(VOCAB)
        drive.finish()
    for result in drive.results:
        snapshot = snapshot.after_step(result.stats, result.fault)
    assert caplog.text.count("drafter script failed to propose") == 2
    seen = snapshot.by_drafter["script"]
    assert seen.num_faults > 10
    assert seen.last_fault == (
        "propose: DrafterError: draft token 251 came; the target's ids are 0 to 250"
    )
    assert snapshot.plain_rows[WhyPlain.DRAFTER_FAILED] == seen.num_faults


def test_a_drafter_that_answers_for_too_few_rows_is_a_fault():
    drive = Drive(script=all_right, planner=always(3))
    drive.drafter.propose = lambda rows: [(1,)] * (len(rows) - 1)
    drive.submit(request("a"), request("b"))
    drive.finish()
    assert right(drive, "a", "b")
    faults = [result.stats.drafter_fault for result in drive.results]
    assert "propose: DrafterError: 1 proposals came for 2 rows" in faults


def test_books_that_disagree_on_one_row_cost_that_row_alone_and_are_said_to(caplog):
    drive = Drive(script=all_right, planner=always(3))
    drive.submit(request("a"), request("b"))
    drive.step(2)
    schedule = drive.engine.scheduler.schedule

    def tampered(plan):
        given = schedule(plan)
        given.turns[0].sequence.followed_by["script"].num_context -= 1
        return given

    drive.engine.scheduler.schedule = tampered
    with caplog.at_level(logging.ERROR):
        drive.step()
    stats = drive.results[-1].stats
    assert "drafts at" in (stats.drafter_fault or "")
    assert stats.num_draft_tokens == 3
    assert "the books of drafter script's context disagree" in caplog.text
    assert "failed to propose" not in caplog.text
    drive.engine.scheduler.schedule = schedule
    drive.finish()
    assert right(drive, "a", "b")

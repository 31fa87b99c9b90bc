"""How many draft tokens each row may have: budgets, ends, pages, contexts that are behind."""

import pytest

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.script_drafter import all_right, all_wrong, none, right_up_to
from dflash.request import GenerateRequest
from dflash.schedule import Schedule, Turn
from dflash.stats import WhyPlain
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


def turns(drive: Drive) -> dict[str, list[Turn]]:
    """Compute one step and return the turns it was scheduled with, by request."""
    given: dict[str, list[Turn]] = {}
    schedule = drive.engine.scheduler.schedule

    def spy(plan) -> Schedule:
        result = schedule(plan)
        for turn in result.turns:
            given.setdefault(turn.sequence.request.request_id, []).append(turn)
        return result

    drive.engine.scheduler.schedule = spy
    drive.step()
    drive.engine.scheduler.schedule = schedule
    return given


def drafts(drive: Drive) -> dict[str, int]:
    """Compute one step and return the draft tokens each decoding request may have."""
    return {name: own[-1].num_drafts for name, own in turns(drive).items() if own[-1].is_decoding}


def reasons(drive: Drive) -> dict[str, WhyPlain | None]:
    return {name: own[-1].why_plain for name, own in turns(drive).items()}


def running(drive: Drive, *requests: GenerateRequest) -> Drive:
    """Submit requests and step until each has begun, nothing drafted yet."""
    drive.submit(*requests)
    drive.step_until(lambda: all(drive.has_begun(each.request_id) for each in requests))
    return drive


def test_each_request_drafts_as_far_as_its_own_plan_says():
    drive = Drive(script=none, planner=always(3))
    running(drive, *(request(name) for name in "abcd"))
    drive.engine.set_planner(Plans([drafting(3, a=0, b=1, c=99)]))
    assert drafts(drive) == {"a": 0, "b": 1, "c": 7, "d": 3}


def test_a_budget_too_small_for_all_drafts_gives_each_row_one_before_any_has_two():
    drive = Drive(limits(4, 11), script=none, planner=always(7))
    running(drive, *(request(name, max_tokens=60) for name in "abcd"))
    assert drafts(drive) == {"a": 2, "b": 2, "c": 2, "d": 1}
    drive.engine.set_limits(limits(4, 4))
    assert reasons(drive) == dict.fromkeys("abcd", WhyPlain.BUDGET)


def test_no_step_computes_more_than_its_budget_with_drafts_either():
    drive = Drive(limits(6, 40), script=right_up_to(2, VOCAB), planner=always(7))
    requests = [request(f"r{index}", PREFIX[index:], 30) for index in range(6)]
    drive.submit(*requests)
    counts = []
    while drive.engine.has_work:
        given = turns(drive)
        counts.append(
            sum(len(t.run.token_ids) + t.num_drafts for own in given.values() for t in own)
        )
    assert max(counts) == 40
    assert_right(drive, *requests)


def test_drafts_leave_half_of_the_rest_to_a_prompt_that_can_use_it():
    drive = Drive(limits(4, 34), script=none, planner=always(7))
    running(drive, request("a"), request("b"))
    drive.submit(request("long", (200, *PREFIX)))
    given = turns(drive)
    assert [given[name][-1].num_drafts for name in "ab"] == [7, 7]
    assert len(given["long"][0].run.token_ids) == 18
    drive.engine.set_limits(limits(4, 18))
    given = turns(drive)
    assert [given[name][-1].num_drafts for name in "ab"] == [4, 4]
    assert len(given["long"][0].run.token_ids) == 8


def test_drafts_take_what_a_short_prompt_leaves():
    drive = Drive(limits(4, 18), script=none, planner=always(7))
    running(drive, request("a"), request("b"))
    drive.submit(request("short", (200, 201, 202)))
    given = turns(drive)
    assert [given[name][-1].num_drafts for name in "ab"] == [7, 6]
    assert len(given["short"][0].run.token_ids) == 3


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 5, 8])
def test_a_draft_is_never_longer_than_what_may_still_be_emitted_but_one(max_tokens: int):
    drive = Drive(script=all_wrong(VOCAB), planner=always(7))
    running(drive, request("r", max_tokens=max_tokens))
    for left in range(max_tokens - 1, 0, -1):
        (turn,) = turns(drive)["r"]
        assert turn.num_drafts == min(left - 1, 7)
        assert turn.why_plain == (WhyPlain.BUDGET if left == 1 else None)
    assert len(drive.answer("r").token_ids) == max_tokens


def owned(drive: Drive) -> int:
    return drive.engine.kv_cache.num_owned


def test_lookahead_pages_come_back_after_every_step():
    drive = Drive(script=all_wrong(VOCAB), planner=always(7))
    running(drive, request("r", PREFIX[:25], 20))
    for num_tokens in range(26, 45):
        assert owned(drive) == -(-num_tokens // 16)
        drive.step()
    assert not drive.engine.has_work


def test_a_step_without_drafts_reserves_no_page_and_asks_nobody():
    pages = []
    for planner in (always(7), always(0)):
        drive = Drive(script=none, planner=planner)
        running(drive, request("r", PREFIX[:31], 20))
        calls = drive.drafter.num_proposals
        (turn,) = turns(drive)["r"]
        pages.append(len(turn.run.page_table))
        assert drive.drafter.num_proposals == calls + (planner.fixed.arm.draft_length > 0)
    assert pages == [3, 2]


def test_the_last_free_page_goes_to_the_oldest_draft_and_nobody_is_preempted_for_another():
    drive = Drive(limits(4, 64), num_pages=5, script=none, planner=always(7))
    requests = [request("old", PREFIX[:29], 12), request("young", PREFIX[30:59], 12)]
    running(drive, *requests)
    assert drafts(drive) == {"old": 7, "young": 2}
    assert drafts(drive) == {"old": 7, "young": 1}
    assert reasons(drive) == {"old": None, "young": WhyPlain.PAGES}
    assert total(drive, "num_preempted") == 0
    drive.finish()
    assert_right(drive, *requests)


def test_a_draft_may_take_the_page_of_a_cached_prefix():
    drive = Drive(limits(4, 64), num_pages=3, script=all_right, planner=always(7))
    drive.submit(request("first", PREFIX[:20], 1))
    drive.finish()
    assert drive.engine.kv_cache.num_cached == 1
    asked = request("r", PREFIX[40:69], 16)
    running(drive, asked)
    assert drafts(drive) == {"r": 7}
    drive.finish()
    assert_right(drive, asked)


class ShortMemory(Drive):
    max_context = 40


def test_a_request_longer_than_the_drafters_context_goes_on_plainly_and_others_draft():
    drive = ShortMemory(script=right_up_to(2, VOCAB), planner=always(3))
    requests = [request("long", PREFIX[20:], 12), request("grows", PREFIX[:36], 24), request("r")]
    drive.submit(*requests)
    drive.finish()
    assert_right(drive, *requests)
    assert speculation(drive, "long").num_plain == {WhyPlain.CONTEXT_TOO_LONG: 11}
    grows = speculation(drive, "grows")
    assert grows.num_drafted
    assert set(grows.num_plain) == {WhyPlain.CONTEXT_TOO_LONG}
    assert speculation(drive, "r").num_drafted > grows.num_drafted
    assert max(row.position for row in drive.drafter.asked) <= 40
    assert total(drive, "num_catch_up_tokens") == 0


def test_a_context_that_fits_the_budget_is_caught_up_in_the_step_that_decodes():
    drive = Drive(limits(4, 64), script=all_right, planner=Plans([COLD, COLD, COLD, drafting(3)]))
    asked = request("r", PREFIX[:30])
    drive.submit(asked)
    drive.step(3)
    (turn,) = turns(drive)["r"]
    assert (turn.run.start, len(turn.run.token_ids), turn.num_catch_up) == (0, 33, 32)
    assert (turn.why_plain, turn.run.num_logits) == (WhyPlain.CATCHING_UP, 1)
    assert drafts(drive) == {"r": 3}
    drive.finish()
    assert_right(drive, asked)


def test_a_context_that_does_not_fit_is_caught_up_beside_the_token_that_decodes():
    drive = Drive(limits(4, 64), script=all_right, planner=Plans([COLD, COLD, drafting(3)]))
    asked = request("r", PREFIX[:60])
    drive.submit(asked)
    drive.step(2)
    drive.engine.set_limits(limits(4, 24))
    for start, num_computed in ((0, 61), (23, 62)):
        catch_up, decode = turns(drive)["r"]
        assert (catch_up.run.start, catch_up.num_catch_up) == (start, 23)
        assert (catch_up.is_decoding, catch_up.run.num_logits) == (False, 0)
        assert (decode.run.start, decode.why_plain) == (num_computed, WhyPlain.CATCHING_UP)
    (turn,) = turns(drive)["r"]
    assert (turn.run.start, turn.num_catch_up, turn.run.num_logits) == (46, 17, 1)
    assert drafts(drive) == {"r": 3}
    drive.finish()
    assert_right(drive, asked)
    assert len(drive.answer("r").token_ids) == 40


def test_every_row_decodes_in_each_step_of_a_catch_up():
    drive = Drive(limits(4, 30), script=all_right)
    requests = [request(name, PREFIX[ord(name) - 97 :][:50], 30) for name in "abcd"]
    running(drive, *requests)
    drive.engine.set_planner(always(3))
    drive.step()
    while drive.results[-1].stats.num_catch_up_tokens:
        drive.step()
        assert drive.results[-1].stats.num_emitted_tokens >= 4
    drive.finish()
    assert_right(drive, *requests)
    assert total(drive, "num_draft_tokens") > 0


def test_prompt_tokens_without_context_are_computed_again_for_a_warm_plan():
    drive = Drive(script=all_right, planner=Plans([COLD, drafting(3)]))
    drive.submit(request("cold", max_tokens=1))
    drive.finish()
    asked = request("warm", (*PREFIX[:20], 200))
    drive.submit(asked)
    (turn,) = turns(drive)["warm"]
    assert (turn.run.start, turn.num_catch_up, turn.is_decoding) == (0, 16, False)
    drive.finish()
    assert_right(drive, asked)
    assert drive.outputs["warm"][0].num_cached_tokens == 16


def test_context_is_shared_with_the_pages_that_hold_it():
    drive = Drive(script=all_right, planner=always(3))
    drive.submit(request("first", max_tokens=1))
    drive.finish()
    asked = request("second", (*PREFIX[:20], 200))
    drive.submit(asked)
    drive.finish()
    assert_right(drive, asked)
    assert total(drive, "num_catch_up_tokens") == 0
    assert drive.outputs["second"][0].num_cached_tokens == 16


@pytest.mark.parametrize("plan", [COLD, WARM])
def test_without_draft_length_every_decoding_row_says_that_the_plan_is_why(plan):
    drive = Drive(script=all_right, planner=Plans([plan]))
    drive.submit(request("r", max_tokens=9))
    drive.finish()
    assert speculation(drive, "r").num_plain == {WhyPlain.PLAN: 8}
    assert drive.drafter.num_proposals == 0


def test_the_tokens_of_a_step_are_its_decoding_draft_prefill_and_catch_up_tokens():
    plans = [COLD, drafting(3), WARM, drafting(2), COLD, COLD, drafting(7)]
    drive = Drive(limits(4, 33), script=right_up_to(2, VOCAB), planner=Plans(plans * 3))
    requests = [request(f"r{index}", PREFIX[index : 50 + index], 25) for index in range(4)]
    drive.submit(*requests)
    while drive.engine.has_work:
        own = turns(drive).values()
        given = [turn for each in own for turn in each]
        stats = drive.results[-1].stats
        num_tokens = sum(len(turn.run.token_ids) + turn.num_drafts for turn in given)
        assert num_tokens == (
            stats.num_decoding
            + stats.num_draft_tokens
            + stats.num_prefill_tokens
            + stats.num_catch_up_tokens
        )
        assert stats.num_decoding == stats.num_drafting + sum(stats.plain_rows.values())
        assert stats.num_decoding + stats.num_prefilling == len(own)
    assert_right(drive, *requests)
    assert total(drive, "num_catch_up_tokens") > 0

"""Stops, budgets and logprobs inside a verified draft: as if tokens had come one by one."""

from collections import Counter

import pytest

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.script_drafter import all_right, eos_at
from benchmarks.rigs.serial import serial_answer
from dflash.drafters.base import DraftRow
from dflash.request import FinishReason
from tests.rigs.drafted import (
    PREFIX,
    always,
    assert_right,
    request,
    speculation,
    total,
)

PROMPT = PREFIX[2:22]


def plain_ids(count: int) -> tuple[int, ...]:
    ids = serial_answer(HashLM(), request("r", PROMPT, count)).token_ids
    assert len(set(ids)) == count, "the rig must not repeat an id where a test stops at one"
    return ids


def beyond_the_end(row: DraftRow, right: tuple[int, ...]) -> tuple[int, ...]:
    """Right ids to the end, then ids as the target would have gone on."""
    return (*right, *range(30, 30 + row.num_drafts))[: row.num_drafts]


@pytest.mark.parametrize("way", ["eos", "stop_token_ids"])
@pytest.mark.parametrize("length", range(8))
def test_a_stop_at_each_place_of_a_draft_ends_the_request_there(way: str, length: int):
    ids = plain_ids(24)
    for j in range(1, 21):
        model = HashLM(eos_token_ids=(ids[j],) if way == "eos" else (0,))
        drive = Drive(model=model, script=beyond_the_end, planner=always(length))
        stops = {"ignore_eos": False} if way == "eos" else {"stop_token_ids": (ids[j],)}
        asked = request("r", PROMPT, 24, **stops)
        drive.submit(asked)
        drive.finish()
        answer = drive.answer("r")
        assert answer.token_ids == ids[:j]
        assert (answer.finish_reason, answer.stop_token_id) == (FinishReason.STOP, ids[j])
        assert_right(drive, asked)
        assert total(drive, "num_emitted_tokens") == j


@pytest.mark.parametrize(
    ("max_tokens", "reason"), [(5, FinishReason.LENGTH), (7, FinishReason.STOP)]
)
def test_a_stop_counts_only_inside_the_budget_whatever_the_draft_holds(max_tokens: int, reason):
    ids = plain_ids(12)
    drive = Drive(script=beyond_the_end, planner=always(7))
    asked = request("r", PROMPT, max_tokens, stop_token_ids=(ids[5],))
    drive.submit(asked)
    drive.finish()
    assert drive.answer("r").token_ids == ids[:5]
    assert drive.answer("r").finish_reason is reason
    assert_right(drive, asked)


def test_a_budget_of_one_takes_one_token_whatever_could_be_drafted():
    drive = Drive(script=all_right, planner=always(4))
    asked = request("r", max_tokens=1)
    drive.submit(asked)
    drive.finish()
    assert_right(drive, asked)
    assert len(drive.answer("r").token_ids) == 1
    assert (drive.drafter.num_proposals, drive.engine.kv_cache.num_owned) == (0, 0)


@pytest.mark.parametrize("place", range(7))
def test_a_drafted_end_of_sequence_that_the_target_rejects_ends_nothing(place: int):
    drive = Drive(script=eos_at(place, 0), planner=always(7))
    asked = request("r", max_tokens=40, ignore_eos=False, min_tokens=40)
    drive.submit(asked)
    drive.finish()
    assert_right(drive, asked)
    assert len(drive.answer("r").token_ids) == 40
    assert drive.answer("r").finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("num_prompt", [400, 497, 505])
def test_a_request_may_draft_up_to_the_last_position_of_the_model(num_prompt: int):
    drive = Drive(num_pages=32, script=beyond_the_end, planner=always(7))
    asked = request("r", [1 + i % 249 for i in range(num_prompt)], 512 - num_prompt)
    drive.submit(asked)
    drive.finish()
    assert_right(drive, asked)
    assert len(drive.answer("r").token_ids) == 512 - num_prompt
    assert drive.drafter.num_proposals > 0


def test_tokens_of_one_message_have_logprobs_of_their_own():
    drive = Drive(script=all_right, planner=always(7))
    asked = request("r", max_tokens=17, num_logprobs=3)
    drive.submit(asked, request("other", PREFIX[:30]))
    drive.finish()
    assert_right(drive, asked)
    whole = max(drive.outputs["r"], key=lambda output: len(output.token_ids))
    assert len(whole.token_ids) == len(whole.logprobs) == 8
    assert len({entry.top for entry in whole.logprobs}) == 8


@pytest.mark.parametrize("length", [0, 1, 3, 7])
def test_there_are_as_many_logprobs_as_tokens_where_a_stop_cuts_a_draft(length: int):
    ids = plain_ids(12)
    drive = Drive(script=beyond_the_end, planner=always(length))
    asked = request("r", PROMPT, 12, num_logprobs=2, stop_token_ids=(ids[10],))
    drive.submit(asked)
    drive.finish()
    assert_right(drive, asked)
    assert len(drive.answer("r").logprobs) == 10


def test_the_last_message_says_how_the_request_was_decoded():
    drive = Drive(script=all_right, planner=always(3))
    asked = request("r", max_tokens=17)
    drive.submit(asked)
    drive.finish()
    said = speculation(drive, "r")
    assert (said.num_steps, said.num_drafted, said.num_accepted, said.num_plain) == (4, 12, 12, {})
    assert [output.speculation is None for output in drive.outputs["r"]] == [True] * 4 + [False]
    drive.submit(request("leaves", PREFIX[:30]))
    drive.step(3)
    drive.abort("leaves")
    assert speculation(drive, "leaves").num_drafted == 6


def test_each_message_says_how_its_step_went_and_they_add_up_to_the_last_ones_sums():
    drive = Drive(script=beyond_the_end, planner=always(3))
    drive.submit(request("r", max_tokens=18))
    drive.finish()
    first, *later = drive.outputs["r"]
    said = speculation(drive, "r")
    assert first.decoded is None
    assert sum(output.decoded.num_drafted for output in later) == said.num_drafted
    assert sum(output.decoded.num_accepted for output in later) == said.num_accepted
    assert [output.decoded.drafter for output in later] == ["script"] * 4 + ["plain"]
    whys = [output.decoded.why_plain for output in later if not output.decoded.num_drafted]
    assert dict(Counter(whys)) == {str(why): count for why, count in said.num_plain.items()}
    assert whys == ["budget"]

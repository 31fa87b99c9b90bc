"""Prefixes shared, chunked and reused while requests draft."""

import pytest

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.script_drafter import all_wrong, random_wrong, right_up_to
from tests.rigs.drafted import (
    COLD,
    PREFIX,
    VOCAB,
    Plans,
    always,
    assert_right,
    drafting,
    limits,
    request,
    speculation,
    total,
)


def test_a_guest_on_a_shared_prefix_drafts_without_touching_its_pages():
    drive = Drive(script=all_wrong(VOCAB), planner=always(7))
    holder = request("holder", (*PREFIX, 200), 60)
    drive.submit(holder)
    drive.step(2)
    shared = drive.engine.scheduler._running[0].table.pages[:5]
    before = drive.model.page_contents()[shared]
    guests = [request(f"guest{index}"[::-1], (*PREFIX, 201 + index), 20) for index in range(4)]
    drive.submit(*guests)
    drive.step(19)
    assert {drive.outputs[each.request_id][0].num_cached_tokens for each in guests} == {80}
    assert (drive.model.page_contents()[shared] == before).all()
    drive.finish()
    assert_right(drive, holder, *guests)


@pytest.mark.parametrize("num_turns", [20])
def test_a_conversation_over_half_wrong_drafts_equals_cold(num_turns: int):
    drive = Drive(
        limits(2, 32), num_pages=40, script=random_wrong(0.5, VOCAB, seed=2), planner=always(7)
    )
    prompt = PREFIX[:10]
    for turn in range(num_turns):
        asked = request(f"turn{turn}"[::-1], prompt, 9)
        drive.submit(asked)
        drive.finish()
        assert_right(drive, asked)
        prompt = (*prompt, *drive.answer(asked.request_id).token_ids, 250 - turn)
        if turn:
            full_pages = (len(asked.prompt_token_ids) - 1) // 16 * 16
            assert drive.outputs[asked.request_id][0].num_cached_tokens >= full_pages - 16
    assert total(drive, "num_accepted_tokens") < total(drive, "num_draft_tokens")


@pytest.mark.parametrize("chunk", [8, 16])
def test_a_last_chunk_of_one_token_runs_beside_rows_that_draft(chunk: int):
    drive = Drive(limits(4, 2 * chunk + 1), script=right_up_to(2, VOCAB), planner=always(7))
    spec, late = request("spec", PREFIX[:4], 40), request("late", PREFIX[:49], 8)
    drive.submit(spec)
    drive.step(2)
    drive.submit(late)
    drive.finish()
    assert_right(drive, spec, late)
    assert not any(result.fault for result in drive.results)
    chunks = {16: [25, 24], 8: [9, 9, 9, 9, 9, 4]}[chunk]
    prefill = [result.stats.num_prefill_tokens for result in drive.results[2:]]
    assert prefill[: len(chunks)] == chunks


@pytest.mark.parametrize("plans", [[drafting(4)], [COLD] * 3 + [drafting(4)]])
@pytest.mark.parametrize("chunk", range(5))
def test_after_an_abort_at_each_chunk_of_a_prefill_the_same_prefix_drafts_as_cold(
    chunk: int, plans
):
    drive = Drive(limits(2, 16), script=right_up_to(3, VOCAB), planner=Plans(plans))
    drive.submit(request("leaves", PREFIX))
    drive.step(chunk)
    drive.abort("leaves")
    again = request("again", (*PREFIX, 200))
    drive.submit(again)
    drive.finish()
    assert_right(drive, again)
    # A warm step after cold ones begins with what they left out.
    num_done = min(chunk, plans.count(COLD)) if COLD in plans else chunk
    assert drive.outputs["again"][0].num_cached_tokens == 16 * num_done
    assert speculation(drive, "again").num_accepted >= 20


def test_equal_prompts_among_others_are_drafted_and_answered_alike():
    drafts: dict[int, list[tuple[int, ...]]] = {}
    script = right_up_to(3, VOCAB)

    def kept(row, right):
        proposal = script(row, right)
        drafts.setdefault(row.seed, []).append(proposal)
        return proposal

    drive = Drive(limits(5, 256), script=kept, planner=always(5))
    prompts = {"a1": PREFIX, "b": PREFIX[40:], "a2": PREFIX, "c": PREFIX[60:], "a3": PREFIX}
    requests = {name: request(name, prompt, 30) for name, prompt in prompts.items()}
    drive.submit(*requests.values())
    drive.finish()
    assert_right(drive, *requests.values())
    alike = [drafts[requests[name].seed] for name in ("a1", "a2", "a3")]
    assert alike[0] == alike[1] == alike[2]
    assert drafts[requests["b"].seed] != alike[0]


@pytest.mark.parametrize(("first", "num_caught_up"), [(always(3), 0), (None, 160)])
def test_a_resent_prompt_of_ten_pages_hits_nine_and_the_drafter_drops_none(first, num_caught_up):
    prompt = tuple(1 + index % 240 for index in range(160))
    drive = Drive(script=right_up_to(2, VOCAB), planner=first)
    drive.submit(request("first", prompt, 1))
    drive.finish()
    drive.engine.set_planner(always(3))
    again = request("again", prompt)
    drive.submit(again)
    drive.finish()
    assert_right(drive, again)
    assert drive.outputs["again"][0].num_cached_tokens == 144
    # Its own tenth page gives way to the one of the first request, which has no context either.
    assert total(drive, "num_catch_up_tokens") == num_caught_up


def test_a_preempted_request_drafts_again_after_it_has_come_back():
    drive = Drive(limits(4, 128), num_pages=9, script=right_up_to(2, VOCAB), planner=always(7))
    requests = [
        request(name, PREFIX[shift:][:31], 60) for shift, name in enumerate(("x", "y", "z"))
    ]
    drive.submit(*requests)
    drive.finish()
    assert_right(drive, *requests)
    assert total(drive, "num_preempted") > 0
    # The wait that its client saw is the first one.
    for outputs in drive.outputs.values():
        assert len({output.started_at_s for output in outputs}) == 1
    for each in requests:
        assert speculation(drive, each.request_id).num_accepted > 20


def test_a_page_whose_owner_is_gone_passes_its_context_to_nobody_by_mistake():
    drive = Drive(limits(2, 64), num_pages=6, script=right_up_to(3, VOCAB), planner=always(4))
    for index in range(12):
        asked = request(f"{index:02}", PREFIX[5 * (index % 7) :][:40], 20)
        drive.engine.set_planner(always(4) if index % 3 else Plans([COLD] * 5 + [drafting(4)]))
        drive.submit(asked)
        drive.finish()
        assert_right(drive, asked)
    assert total(drive, "num_accepted_tokens") > 100

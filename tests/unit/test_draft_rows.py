"""Rows that draft beside others: each has its own counts, pages and context."""

from dataclasses import replace
from itertools import permutations

import pytest

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.script_drafter import all_right, random_wrong, right_up_to
from dflash.drafters.base import DraftRow
from dflash.request import SamplingParams
from tests.rigs.drafted import (
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


def test_the_middle_one_of_five_ends_and_each_other_row_grows_by_its_own_count():
    counts = {"a": 4, "b": 1, "c": 7, "d": 2, "e": 3}
    requests = {name: request(name, PREFIX[ord(name) - 97 :][:20], 60) for name in counts}
    requests["c"] = request("c", PREFIX[2:22], 12)
    by_seed = {each.seed: counts[name] for name, each in requests.items()}

    def script(row: DraftRow, right: tuple[int, ...]) -> tuple[int, ...]:
        return right_up_to(by_seed[row.seed], VOCAB)(row, right)

    drive = Drive(script=script, planner=always(7))
    drive.submit(*requests.values())
    drive.step_until(lambda: drive.answer("c").finish_reason is not None)
    before = {name: len(drive.answer(name).token_ids) for name in counts}
    drive.step()
    after = {name: len(drive.answer(name).token_ids) for name in counts}
    grown = {name: after[name] - before[name] for name in counts}
    assert grown == {"a": 5, "b": 2, "c": 0, "d": 3, "e": 4}
    drive.finish()
    assert_right(drive, *requests.values())


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_a_plain_row_a_drafting_row_and_two_kinds_of_chunk_in_every_order(order):
    planner = Plans([drafting(4, plain=0)])
    drive = Drive(limits(4, 24), script=right_up_to(2, VOCAB), planner=planner)
    plain = request("plain", PREFIX[:9], 12)
    spec = request("spec", PREFIX[3:21], 12, temperature=1.0, top_k=5)
    drive.submit(plain, spec)
    drive.step(3)
    last_chunk, chunk = request("last", PREFIX[5:17]), request("chunk", PREFIX[7:77])
    drive.submit(last_chunk)
    drive.engine.set_limits(limits(4, 13))
    drive.engine.set_planner(always(0))
    drive.step()
    drive.submit(chunk)
    drive.engine.set_limits(limits(4, 24))
    drive.engine.set_planner(planner)

    schedule = drive.engine.scheduler.schedule
    lengths = []

    def reordered(plan):
        given = schedule(plan)
        lengths.append([len(turn.run.token_ids) + turn.num_drafts for turn in given.turns])
        if len(given.turns) < 4:
            return given
        return replace(given, turns=tuple(given.turns[index] for index in order))

    drive.engine.scheduler.schedule = reordered
    drive.finish()
    assert lengths[0] == [1, 5, 1, 17]
    assert_right(drive, plain, spec, last_chunk, chunk)
    assert speculation(drive, "plain").num_drafted == 0
    assert speculation(drive, "spec").num_accepted > 0


def by_place(row: DraftRow, right: tuple[int, ...]) -> tuple[int, ...]:
    """Right but for ids that request and position decide, so that all runs draft alike."""
    return tuple(
        (id_ + 1) % VOCAB if (row.seed + 7 * (row.position + place)) % 6 == 0 else id_
        for place, id_ in enumerate(right)
    )


def counts_of_each_step(num_running: int) -> dict[str, list[int]]:
    drive = Drive(limits(num_running, 512), num_pages=200, script=by_place, planner=always(5))
    requests = [request(f"r{index}", PREFIX[index:][:40], 30) for index in range(16)]
    drive.submit(*requests)
    drive.finish()
    assert_right(drive, *requests)
    assert total(drive, "num_accepted_tokens") > 100
    return {
        name: [len(output.token_ids) for output in outputs]
        for name, outputs in drive.outputs.items()
    }


def test_what_each_request_has_accepted_does_not_depend_on_how_many_run():
    alone = counts_of_each_step(1)
    for num_running in (4, 8, 16):
        assert counts_of_each_step(num_running) == alone


def test_rows_near_their_budget_shorten_their_drafts_and_nobody_elses():
    drive = Drive(limits(8, 512), script=right_up_to(6, VOCAB), planner=always(7))
    budgets = (3, 5, 9, 64, 64, 64, 64, 64)
    requests = [
        request(f"r{index}", PREFIX[index:][:20], budget) for index, budget in enumerate(budgets)
    ]
    drive.submit(*requests)
    drive.finish()
    assert_right(drive, *requests)
    assert [len(drive.answer(each.request_id).token_ids) for each in requests] == list(budgets)


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
def test_unlike_rows_that_draft_are_each_given_their_own(temperature: float):
    common = {"temperature": temperature, "ignore_eos": False}
    kinds = [
        {},
        {"num_logprobs": 3},
        {"frequency_penalty": 0.7, "presence_penalty": -0.3},
        {"repetition_penalty": 1.3, "min_tokens": 8, "stop_token_ids": (5, 9)},
        {"logit_bias": ((3, 4.0), (9, -100.0)), "top_k": 7},
        {"top_p": 0.8, "min_p": 0.02},
    ]
    drive = Drive(limits(6, 64), script=random_wrong(0.2, VOCAB, seed=6), planner=always(6))
    requests = [
        request(f"r{index}", PREFIX[index:][:30], 25 + index, **common, **kind)
        for index, kind in enumerate(kinds)
    ]
    drive.submit(*requests)
    drive.finish()
    assert_right(drive, *requests)
    assert total(drive, "num_accepted_tokens") > 20


def test_a_drafter_is_told_whose_noise_to_draw_with():
    drive = Drive(script=all_right, planner=always(3))
    asked = replace(request("r", temperature=0.7), seed=2**60 + 3, choice=5)
    drive.submit(asked)
    drive.step(2)
    (row,) = drive.drafter.asked
    assert (row.temperature, row.seed, row.choice) == (0.7, 2**60 + 3, 5)
    assert asked.sampling == SamplingParams(temperature=0.7, ignore_eos=True)

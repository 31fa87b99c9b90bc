"""A request's answer is its own, whatever ends, begins, shares or is preempted around it."""

import gc
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.random_requests import RandomRequests
from benchmarks.rigs.serial import serial_answer
from dflash.config import EngineLimits
from dflash.kv_cache import PageTable
from dflash.request import FinishReason, GenerateRequest, SamplingParams
from dflash.sequence import Sequence

GREEDY = SamplingParams(temperature=0.0, ignore_eos=True)
SAMPLED = SamplingParams(temperature=1.0, top_k=5, ignore_eos=True)
PREFIX = tuple(range(1, 81))


def request(request_id: str, prompt: tuple[int, ...], max_tokens: int = 6) -> GenerateRequest:
    return GenerateRequest(request_id, prompt, max_tokens, GREEDY)


def limits(max_num_seqs: int, max_num_batched_tokens: int) -> EngineLimits:
    return EngineLimits(max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)


def assert_right(drive: Drive, *requests: GenerateRequest) -> None:
    for each in requests:
        assert drive.answer(each.request_id) == serial_answer(drive.model, each), each


@given(
    common=st.integers(1, 90),
    tails=st.lists(st.integers(0, 40), min_size=2, max_size=4),
    budget=st.integers(4, 64),
    leave_after=st.integers(0, 6),
)
@settings(max_examples=40)
def test_warm_equals_cold(common: int, tails: list[int], budget: int, leave_after: int):
    drive = Drive(limits(4, budget))
    prefix = (PREFIX + PREFIX)[:common]
    requests = [
        request(f"r{index}", (*prefix, *(100 + index + i for i in range(tail))))
        for index, tail in enumerate(tails)
    ]
    drive.submit(requests[0])
    drive.step(leave_after)
    drive.abort("r0")
    for each in requests[1:]:
        drive.submit(each)
        drive.finish()
    assert_right(drive, *requests[1:])


@pytest.mark.parametrize("chunk", range(5))
def test_after_an_abort_at_each_chunk_of_a_prefill_the_same_prefix_equals_cold(chunk: int):
    drive = Drive(limits(2, 16))
    drive.submit(request("leaves", PREFIX))
    drive.step(chunk)
    drive.abort("leaves")
    assert drive.engine.counts.num_pages_used == 0
    again = request("again", (*PREFIX, 200))
    drive.submit(again)
    drive.finish()
    assert_right(drive, again)
    assert drive.outputs["again"][0].num_cached_tokens == 16 * chunk


def test_the_middle_one_of_five_ends_and_the_others_go_on():
    budgets = (20, 17, 3, 19, 12)
    drive = Drive(limits(5, 64))
    requests = [
        request(f"r{index}", PREFIX[index : 20 + 9 * index], budget)
        for index, budget in enumerate(budgets)
    ]
    drive.submit(*requests)
    drive.step_until(lambda: drive.answer("r2").finish_reason is not None)
    before = {
        each.request_id: len(drive.answer(each.request_id).token_ids)
        for each in requests
        if drive.answer(each.request_id).finish_reason is None
    }
    drive.step()
    assert len(before) == 4
    for request_id, count in before.items():
        assert len(drive.answer(request_id).token_ids) == count + 1
    drive.finish()
    assert_right(drive, *requests)


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_decoding_rows_a_chunk_and_a_last_chunk_of_one_token_in_every_order(order):
    drive = Drive(limits(4, 24))
    plain, sampled = (
        request("plain", PREFIX[:9], 12),
        GenerateRequest("sampled", PREFIX[3:21], 12, SAMPLED, seed=5),
    )
    drive.submit(plain, sampled)
    drive.step(3)
    last_chunk, chunk = request("last chunk", PREFIX[5:17]), request("chunk", PREFIX[7:77])
    drive.submit(last_chunk)
    drive.engine.set_limits(limits(4, 13))
    drive.step()
    drive.submit(chunk)
    drive.engine.set_limits(limits(4, 24))

    schedule = drive.engine.scheduler.schedule
    lengths = []

    def reordered(plan):
        given = schedule(plan)
        lengths.append([len(turn.run.token_ids) for turn in given.turns])
        if len(given.turns) < 4:
            return given
        turns = tuple(given.turns[index] for index in order)
        return type(given)(turns, given.num_preempted, given.num_cached_tokens)

    drive.engine.scheduler.schedule = reordered
    drive.finish()
    assert lengths[0] == [1, 1, 1, 21]
    assert_right(drive, plain, sampled, last_chunk, chunk)


@pytest.mark.parametrize("num_running", [1, 2, 3, 5, 8])
def test_an_answer_does_not_depend_on_how_many_run(num_running: int):
    source = RandomRequests(seed=num_running, vocab_size=251)
    requests = [source.draw(f"r{index}") for index in range(num_running)]
    drive = Drive(num_pages=256)
    drive.submit(*requests)
    drive.finish()
    assert_right(drive, *requests)


@given(seed=st.integers(0, 10_000), budget=st.integers(8, 90), num_pages=st.integers(23, 40))
@settings(max_examples=15)
def test_unlike_requests_in_one_batch_are_each_given_their_own(
    seed: int, budget: int, num_pages: int
):
    source = RandomRequests(seed, vocab_size=251)
    requests = [source.draw(f"r{index}") for index in range(7)]
    drive = Drive(limits(7, budget), num_pages=num_pages)
    drive.submit(*requests)
    drive.finish()
    assert_right(drive, *requests)
    assert drive.engine.counts.num_pages_used == 0


def test_equal_prompts_beside_others_are_given_equal_answers():
    drive = Drive(limits(5, 32))
    prompts = {"a1": PREFIX, "b": PREFIX[40:], "a2": PREFIX, "c": PREFIX[60:], "a3": PREFIX}
    requests = [request(name, prompt) for name, prompt in prompts.items()]
    drive.submit(*requests)
    drive.finish()
    assert_right(drive, *requests)


def test_pages_that_others_share_stay_untouched():
    drive = Drive()
    holder = request("holder", (*PREFIX, 200), 60)
    drive.submit(holder)
    drive.step(2)
    table = next(iter(drive.engine.kv_cache._tables))
    shared = table.pages[:5]
    before = drive.model.page_contents()[shared]
    guests = [request(f"guest{index}", (*PREFIX, 201 + index), 30) for index in range(4)]
    drive.submit(*guests)
    drive.step(20)
    assert {drive.outputs[each.request_id][0].num_cached_tokens for each in guests} == {80}
    assert (drive.model.page_contents()[shared] == before).all()
    drive.finish()
    assert_right(drive, holder, *guests)


@pytest.mark.parametrize("turns", [20])
def test_a_conversation_that_reuses_its_answers_equals_cold(turns: int):
    drive = Drive(limits(2, 32), num_pages=40)
    prompt = PREFIX[:10]
    for turn in range(turns):
        asked = request(f"turn{turn}", prompt, 9)
        drive.submit(asked)
        drive.finish()
        assert_right(drive, asked)
        prompt = (*prompt, *drive.answer(asked.request_id).token_ids, 250 - turn)
        full_pages = (len(asked.prompt_token_ids) - 1) // 16 * 16
        if turn:
            assert drive.outputs[asked.request_id][0].num_cached_tokens >= full_pages - 16


@pytest.mark.parametrize("state", ["waiting", "in prefill", "decoding", "preempted"])
def test_whoever_leaves_gives_all_pages_back_within_the_step(state: str):
    drive = Drive(limits(2, 16), num_pages=24)
    stays, leaves = request("stays", PREFIX[:30], 60), request("leaves", PREFIX[::-1][:60], 100)
    is_reached = {
        "waiting": lambda: True,
        "in prefill": lambda: len(drive.results) == 4,
        "decoding": lambda: drive.has_begun("leaves"),
        "preempted": lambda: any(result.stats.num_preempted for result in drive.results),
    }[state]
    if state == "preempted":
        drive = Drive(limits(2, 128), num_pages=10)
        leaves = request("leaves", PREFIX[::-1][:60], 60)
    drive.submit(stays, leaves)
    drive.step_until(is_reached)
    drive.abort("leaves")
    stays_holds = sum(len(table.pages) for table in drive.engine.kv_cache._tables)
    assert drive.engine.counts.num_pages_used == stays_holds
    assert drive.answer("leaves").finish_reason is FinishReason.ABORT
    drive.finish()
    assert_right(drive, stays)


def test_an_id_used_again_after_an_abort_is_another_request():
    drive = Drive()
    drive.submit(request("same", PREFIX[:40], 30))
    drive.step(5)
    drive.abort("same")
    second = request("same", PREFIX[20:60], 7)
    drive.submit(second)
    drive.finish()
    assert_right(drive, second)


def test_a_lone_request_after_a_burst_is_not_given_an_answer_of_the_burst():
    drive = Drive(limits(8, 48), num_pages=30)
    source = RandomRequests(seed=11, vocab_size=251)
    for burst in range(4):
        requests = [source.draw(f"b{burst}-{index}") for index in range(8)]
        drive.submit(*requests)
        drive.finish()
        lone = source.draw(f"lone{burst}")
        drive.submit(lone)
        drive.finish()
        assert_right(drive, *requests, lone)


def test_nothing_is_kept_of_requests_that_have_ended():
    drive = Drive(limits(4, 64), num_pages=30)
    source = RandomRequests(seed=2, vocab_size=251)
    for index in range(40):
        drive.submit(source.draw(f"r{index}"))
        drive.step()
    drive.abort("r39")
    drive.finish()
    gc.collect()
    # `type`, not `isinstance`: asking some of torch's objects for their class warns.
    kept = [each for each in gc.get_objects() if type(each) in (Sequence, PageTable)]
    assert kept == []


def test_the_engine_alone_and_cold_equals_decoding_without_pages():
    source = RandomRequests(seed=3, vocab_size=251)
    for index in range(12):
        asked = source.draw(f"r{index}")
        drive = Drive(limits(1, 512), prefix_caching=False)
        drive.submit(asked)
        drive.finish()
        assert drive.answer(asked.request_id) == serial_answer(HashLM(), asked)

"""Who computes when: shares of the budget, admission, preemption. Counted in steps, never timed."""

import pytest

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.serial import serial_answer
from dflash.config import EngineLimits
from dflash.request import FinishReason, GenerateRequest, SamplingParams

GREEDY = SamplingParams(temperature=0.0, ignore_eos=True)


def request(request_id: str, num_prompt: int, max_tokens: int = 8) -> GenerateRequest:
    # Every prompt has its own first id, so nothing is shared by chance.
    first = sum(map(ord, request_id)) % 250
    prompt = (first, *(1 + index % 249 for index in range(num_prompt - 1)))
    return GenerateRequest(request_id, prompt, max_tokens, GREEDY)


def limits(max_num_seqs: int, max_num_batched_tokens: int) -> EngineLimits:
    return EngineLimits(max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)


def shares(drive: Drive) -> dict[str, int]:
    """Compute one step and return how many tokens each request computed in it."""
    given = {}
    schedule = drive.engine.scheduler.schedule

    def spy(plan):
        result = schedule(plan)
        given.update({t.sequence.request.request_id: len(t.run.token_ids) for t in result.turns})
        return result

    drive.engine.scheduler.schedule = spy
    drive.step()
    drive.engine.scheduler.schedule = schedule
    return given


def test_no_step_computes_more_than_its_budget():
    drive = Drive(limits(4, 10))
    drive.submit(*(request(f"r{index}", 30) for index in range(4)))
    totals = []
    while drive.engine.has_work:
        totals.append(sum(shares(drive).values()))
    assert max(totals) == 10


def test_running_requests_decode_in_every_step_of_a_long_prefill():
    drive = Drive(limits(8, 16))
    drive.submit(request("a", 4, 40), request("b", 4, 40))
    drive.step(2)
    drive.submit(request("long", 300))
    while not drive.has_begun("long"):
        given = shares(drive)
        assert given.items() >= {"a": 1, "b": 1}.items()


def test_a_short_request_begins_while_a_long_prompt_is_computed_and_another_decodes():
    drive = Drive(limits(8, 32), num_pages=64)
    drive.submit(request("decoding", 4, 60))
    drive.step()
    drive.submit(request("long", 450))
    drive.step(2)
    drive.submit(request("short", 12))
    assert drive.step_until(lambda: drive.has_begun("short")) <= 2
    assert not drive.has_begun("long")


def test_a_short_request_waits_for_neither_of_two_long_prompts():
    drive = Drive(limits(8, 32), num_pages=64)
    drive.submit(request("long", 400), request("longer", 420))
    drive.step(2)
    drive.submit(request("short", 12))
    assert drive.step_until(lambda: drive.has_begun("short")) <= 2


def test_short_requests_without_end_leave_half_the_budget_to_a_long_prompt():
    drive = Drive(limits(8, 32), num_pages=64)
    drive.submit(request("long", 400))
    for index in range(200):
        if drive.has_begun("long"):
            break
        drive.submit(request(f"short{index}", 16, 1))
        assert shares(drive)["long"] >= 16
    assert drive.has_begun("long")


def test_equal_prompts_are_computed_one_after_the_other():
    drive = Drive(limits(4, 32))
    drive.submit(*(request(f"r{index}", 64, 60) for index in range(4)))
    begun = [drive.step_until(lambda i=index: drive.has_begun(f"r{i}")) for index in range(4)]
    assert sum(begun[:1]) <= 3
    assert sum(begun[:2]) <= 5


def test_four_cold_prompts_all_run_after_their_prefill():
    drive = Drive(limits(4, 16))
    drive.submit(*(request(f"r{index}", 40, 60) for index in range(4)))
    begun = []
    for count in range(1, 4):
        drive.step_until(lambda n=count: sum(map(drive.has_begun, drive.outputs)) >= n, most=20)
        begun.append(len(drive.results))
    drive.step_until(lambda: all(map(drive.has_begun, drive.outputs)), most=20)
    # Full slots keep no one waiting: the last begins in less than twice the time of the one before.
    assert len(drive.results) < 2 * begun[-1]
    assert shares(drive) == {f"r{index}": 1 for index in range(4)}


@pytest.mark.parametrize("chunk", [8, 16])
def test_a_last_chunk_of_one_token_runs_beside_decoding_rows(chunk: int):
    drive = Drive(limits(4, chunk + 1))
    decoding, late = request("decoding", 4, 30), request("late", 3 * chunk + 1)
    drive.submit(decoding)
    drive.step()
    drive.submit(late)
    chunks = []
    while not drive.has_begun("late"):
        chunks.append(shares(drive)["late"])
    drive.finish()
    assert chunks == [chunk, chunk, chunk, 1]
    for each in (decoding, late):
        assert drive.answer(each.request_id) == serial_answer(drive.model, each)


def test_decoding_rows_take_turns_where_the_budget_is_under_their_number():
    drive = Drive(limits(4, 64))
    drive.submit(*(request(f"r{index}", 4, 60) for index in range(4)))
    drive.step()
    drive.engine.set_limits(limits(2, 2))
    seen = [tuple(shares(drive)) for _ in range(4)]
    assert seen == [("r0", "r1"), ("r2", "r3")] * 2


def test_lower_limits_let_those_running_finish():
    drive = Drive(limits(4, 64))
    requests = [request(f"r{index}", 20) for index in range(6)]
    drive.submit(*requests)
    drive.step()
    drive.engine.set_limits(limits(1, 1))
    drive.finish()
    for each in requests:
        assert drive.answer(each.request_id) == serial_answer(drive.model, each)
    assert not any(result.stats.num_preempted for result in drive.results)


def test_the_youngest_gives_way_and_is_the_first_to_come_back():
    drive = Drive(limits(4, 128), num_pages=9)
    names = ("first", "second", "third", "late")
    requests = [request(name, 31, 60) for name in names]
    drive.submit(*requests[:3])
    drive.step_until(lambda: any(result.stats.num_preempted for result in drive.results))
    drive.submit(requests[3])
    assert list(shares(drive)) == ["first", "second"]
    ends: list[str] = []
    while len(ends) < len(names):
        drive.step()
        ends += [name for name in names if name not in ends and drive.answer(name).finish_reason]
    assert tuple(ends) == names
    for each in requests:
        assert drive.answer(each.request_id) == serial_answer(drive.model, each)


def test_five_preemptions_among_eight_requests_change_nothing():
    drive = Drive(limits(8, 64), num_pages=9)
    requests = [request(f"r{index}", 14, 80) for index in range(8)]
    drive.submit(*requests)
    drive.finish()
    assert sum(result.stats.num_preempted for result in drive.results) >= 5
    for each in requests:
        assert drive.answer(each.request_id) == serial_answer(drive.model, each)


def test_a_request_that_needs_every_page_runs_alone_and_ends():
    drive = Drive(limits(4, 64), num_pages=4)
    whole = request("whole", 33, 32)
    drive.submit(request("first", 20, 20), whole, request("last", 20, 20))
    drive.finish()
    assert drive.answer("whole") == serial_answer(drive.model, whole)
    assert drive.answer("last").finish_reason is FinishReason.LENGTH


def test_requests_with_one_prefix_that_arrive_together_compute_it_once():
    drive = Drive(limits(16, 64))
    prompt = tuple(range(1, 130))
    requests = [
        GenerateRequest(f"r{index}", (*prompt, 200 + index), 4, GREEDY) for index in range(10)
    ]
    drive.submit(*requests)
    drive.finish()
    computed = sum(result.stats.num_prefill_tokens for result in drive.results)
    assert computed < 3 * len(prompt)
    for each in requests:
        assert drive.answer(each.request_id) == serial_answer(drive.model, each)

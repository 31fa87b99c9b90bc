"""One engine: when requests end, which are refused, and whom a fault touches."""

import pytest
import torch

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.serial import serial_answer
from dflash.batch import Batch
from dflash.config import EngineLimits
from dflash.engine import Engine
from dflash.errors import OUT_OF_MEMORY, OverloadedError, RequestError
from dflash.request import FinishReason, GenerateRequest, SamplingParams
from dflash.sampling import Chosen, draw_ids
from dflash.sequence import Sequence
from dflash.target import TargetOutput
from dflash.verify import STEP_FAILED

PROMPT = tuple(range(5, 25))
GREEDY = SamplingParams(temperature=0.0, ignore_eos=True)


def request(request_id: str = "r", max_tokens: int = 8, **sampling) -> GenerateRequest:
    params = SamplingParams(**{"temperature": 0.0, "ignore_eos": True, **sampling})
    return GenerateRequest(request_id, PROMPT, max_tokens, params)


def plain_ids(count: int) -> tuple[int, ...]:
    ids = serial_answer(HashLM(), request(max_tokens=count)).token_ids
    assert len(set(ids)) == count, "the rig must not repeat an id where a test stops at one"
    return ids


def emitted(ids: list[int], max_tokens: int, **sampling):
    sequence = Sequence(request(max_tokens=max_tokens, **sampling), eos_token_ids=(0,))
    return sequence.emit(Chosen(id_, None) for id_ in ids)


def test_a_stop_inside_the_budget_ends_with_stop_and_nothing_after_it():
    output = emitted([10, 11, 99, 20, 21, 22], max_tokens=5, stop_token_ids=(99,))
    assert output.token_ids == (10, 11)
    assert (output.finish_reason, output.stop_token_id) == (FinishReason.STOP, 99)


def test_a_stop_beyond_the_budget_ends_with_length():
    output = emitted([10, 11, 20, 21, 22, 99], max_tokens=5, stop_token_ids=(99,))
    assert output.token_ids == (10, 11, 20, 21, 22)
    assert (output.finish_reason, output.stop_token_id) == (FinishReason.LENGTH, None)


def test_a_budget_of_one_takes_one_of_five_tokens():
    output = emitted([10, 11, 20, 21, 22], max_tokens=1)
    assert (output.token_ids, output.finish_reason) == ((10,), FinishReason.LENGTH)


@pytest.mark.parametrize(("ignore_eos", "ids"), [(False, (10,)), (True, (10, 0, 11))])
def test_the_end_of_sequence_is_an_ordinary_token_where_it_is_ignored(ignore_eos: bool, ids):
    assert emitted([10, 0, 11], max_tokens=3, ignore_eos=ignore_eos).token_ids == ids


@pytest.mark.parametrize("way", ["eos", "stop_token_ids"])
@pytest.mark.parametrize("j", range(12))
def test_a_stop_at_each_place_and_each_budget_around_it(way: str, j: int):
    ids = plain_ids(14)
    for max_tokens in {1, max(j, 1), j + 1, j + 2, 14}:
        model = HashLM(eos_token_ids=(ids[j],) if way == "eos" else (0,))
        drive = Drive()
        drive.model, drive.engine = model, Engine(model, EngineLimits())
        stops = {"ignore_eos": False} if way == "eos" else {"stop_token_ids": (ids[j],)}
        drive.submit(request(max_tokens=max_tokens, **stops))
        drive.finish()
        answer = drive.answer("r")
        is_stopped = max_tokens > j
        assert answer.token_ids == ids[: min(j, max_tokens)]
        assert answer.finish_reason is (FinishReason.STOP if is_stopped else FinishReason.LENGTH)
        assert answer.stop_token_id == (ids[j] if is_stopped else None)


def test_a_request_may_fill_the_context_to_its_last_position():
    drive = Drive(num_pages=32)
    full = GenerateRequest("full", tuple(range(1, 201)), 312, GREEDY)
    drive.submit(full)
    drive.finish()
    assert drive.answer("full") == serial_answer(drive.model, full)
    assert len(drive.answer("full").token_ids) == 312


def test_one_message_a_step_says_what_the_cache_gave():
    drive = Drive()
    drive.submit(request("cold"))
    drive.finish()
    drive.submit(request("warm"))
    drive.finish()
    assert [output.num_cached_tokens for output in drive.outputs["cold"]] == [0] * 8
    assert [output.num_cached_tokens for output in drive.outputs["warm"]] == [16] * 8


def test_after_a_preemption_the_cache_does_not_count_a_requests_own_work():
    drive = Drive(num_pages=6)
    requests = [
        GenerateRequest("old", PROMPT, 30, GREEDY),
        GenerateRequest("young", tuple(range(60, 100)), 30, GREEDY),
    ]
    drive.submit(*requests)
    drive.finish()
    stats = [result.stats for result in drive.results]
    assert sum(each.num_preempted for each in stats)
    assert sum(each.num_cached_tokens for each in stats)
    for each in requests:
        assert {output.num_cached_tokens for output in drive.outputs[each.request_id]} == {0}


@pytest.mark.parametrize(
    ("bad", "field", "numbers"),
    [
        ({"prompt": (1,) * 512}, "prompt", ("512", "511")),
        ({"prompt": (1,) * 500, "max_tokens": 13}, "max_tokens", ("500", "13", "512", "12")),
        ({"prompt": (1,) * 129, "max_tokens": 1}, None, ()),
        ({"prompt": (1, 251)}, "prompt", ("251", "250")),
        ({"prompt": (1, -1)}, "prompt", ("-1", "250")),
        ({"sampling": SamplingParams(stop_token_ids=(251,))}, "stop_token_ids", ("251",)),
        ({"sampling": SamplingParams(logit_bias=((-2, 1.0),))}, "logit_bias", ("-2",)),
    ],
)
def test_what_the_target_cannot_serve_is_refused_by_field_and_number(bad, field, numbers):
    engine = Engine(HashLM(), EngineLimits())
    asked = GenerateRequest(
        "r", bad.get("prompt", PROMPT), bad.get("max_tokens", 1), bad.get("sampling", GREEDY)
    )
    if field is None:
        engine.submit(asked)
        return
    with pytest.raises(RequestError) as refusal:
        engine.submit(asked)
    assert refusal.value.field == field
    for number in numbers:
        assert number in str(refusal.value)
    assert not engine.has_work


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "field"),
    [(100, 29, None), (100, 30, "max_tokens"), (128, 1, None), (129, 1, "prompt")],
)
def test_a_request_that_outgrows_all_pages_is_refused_and_the_next_is_served(
    num_prompt: int, max_tokens: int, field: str | None
):
    drive = Drive(num_pages=8)
    asked = GenerateRequest("big", (3,) * num_prompt, max_tokens, GREEDY)
    if field is None:
        drive.submit(asked)
    else:
        with pytest.raises(RequestError, match=r"all KV pages together hold 128 tokens") as refusal:
            drive.engine.submit(asked)
        assert refusal.value.field == field
    drive.submit(request("next"))
    drive.finish()
    assert drive.answer("next") == serial_answer(drive.model, request("next"))


def test_a_live_request_id_cannot_be_used_twice_and_an_ended_one_can():
    drive = Drive()
    drive.submit(request("same"))
    with pytest.raises(RequestError, match="'same' is in use"):
        drive.engine.submit(request("same"))
    drive.finish()
    drive.submit(request("same"))
    drive.finish()
    assert drive.answer("same") == serial_answer(drive.model, request("same"))


def test_the_queue_is_bounded_beyond_the_free_slots():
    engine = Engine(HashLM(), EngineLimits(max_num_seqs=2, max_num_waiting=3))
    for index in range(5):
        engine.submit(request(f"r{index}"))
    with pytest.raises(OverloadedError, match="3 requests are waiting") as refusal:
        engine.submit(request("one more"))
    assert refusal.value.retry_after_s >= 1.0


def test_waiting_tokens_are_bounded_but_one_long_prompt_may_wait():
    engine = Engine(HashLM(), EngineLimits(max_waiting_tokens=10))
    engine.submit(request("long"))
    with pytest.raises(OverloadedError, match="20 tokens are waiting, this prompt has 20"):
        engine.submit(request("one more"))


class NotANumberFor(HashLM):
    """Answers NaN for the sequence that begins with this id."""

    def __init__(self, first_id: int) -> None:
        super().__init__()
        self.first_id = first_id

    def forward(self, batch: Batch, taps: tuple[int, ...] = ()) -> TargetOutput:
        logits = super().forward(batch, taps).logits
        owners = torch.searchsorted(batch.run_offsets, batch.logit_rows, right=True) - 1
        for row, owner in enumerate(owners.tolist()):
            page = int(batch.page_tables[owner, 0])
            if self.page_contents()[page, 0, 1] == self.first_id:
                logits[row] = float("nan")
        return TargetOutput(logits)


def test_a_row_without_a_choice_ends_its_own_request_only():
    drive = Drive()
    drive.model = NotANumberFor(first_id=77)
    drive.engine = Engine(drive.model, EngineLimits())
    good = [GenerateRequest(f"good{i}", (i + 1, 2, 3), 6, GREEDY) for i in range(3)]
    bad = GenerateRequest("bad", (77, 2, 3), 6, GREEDY)
    drive.submit(good[0], bad, *good[1:])
    drive.finish()
    for each in good:
        assert drive.answer(each.request_id) == serial_answer(HashLM(), each)
    last = drive.outputs["bad"][-1]
    assert (last.finish_reason, last.token_ids) == (FinishReason.ERROR, ())
    assert last.error
    assert sum(result.stats.num_failed for result in drive.results) == 1


def test_a_fault_of_ours_in_one_choice_ends_its_own_request_only(monkeypatch):
    drive = Drive()
    good = [GenerateRequest(f"good{i}", (i + 1, 2, 3), 6, GREEDY) for i in range(2)]
    bad = GenerateRequest("bad", (77, 2, 3), 6, GREEDY)

    def draw_or_fail(logits, rows):
        if any(row.prompt_token_ids[0] == 77 for row in rows):
            raise TypeError("not foreseen")
        return draw_ids(logits, rows)

    monkeypatch.setattr("dflash.verify.draw_ids", draw_or_fail)
    drive.submit(good[0], bad, good[1])
    drive.finish()

    for each in good:
        assert drive.answer(each.request_id) == serial_answer(HashLM(), each)
    last = drive.outputs["bad"][-1]
    assert last.finish_reason is FinishReason.ERROR
    assert "not foreseen" not in (last.error or "")


class FailsOnce(HashLM):
    def __init__(self) -> None:
        super().__init__()
        self.fault: Exception | None = None

    def forward(self, batch: Batch, taps: tuple[int, ...] = ()) -> TargetOutput:
        output = super().forward(batch, taps)
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault
        return output


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (MemoryError("no room"), OUT_OF_MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory"), OUT_OF_MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), OUT_OF_MEMORY),
        (RuntimeError("shapes differ"), STEP_FAILED),
    ],
)
def test_a_failed_step_ends_its_requests_frees_their_pages_and_spares_those_waiting(
    fault: Exception, told: str
):
    drive = Drive()
    drive.model = FailsOnce()
    drive.engine = Engine(drive.model, EngineLimits(max_num_seqs=2))
    drive.submit(request("a"), request("b"), request("waiting"))
    drive.step()
    drive.model.fault = fault
    drive.step()
    assert drive.results[-1].fault == f"{type(fault).__name__}: {fault}"
    for name in ("a", "b"):
        assert drive.answer(name).finish_reason is FinishReason.ERROR
        assert drive.outputs[name][-1].error == told
    assert drive.engine.counts.num_pages_used == 0
    drive.finish()
    assert drive.answer("waiting") == serial_answer(drive.model, request("waiting"))


def test_logprobs_come_with_each_token_where_asked():
    drive = Drive()
    asked = request("asked", num_logprobs=2, stop_token_ids=(plain_ids(6)[4],))
    drive.submit(asked, request("not asked"))
    drive.finish()
    assert drive.answer("asked") == serial_answer(drive.model, asked)
    assert len(drive.answer("asked").logprobs) == 4
    assert all(output.logprobs is None for output in drive.outputs["not asked"])


def test_the_stats_of_a_mixed_step_count_each_token_once():
    drive = Drive(EngineLimits(max_num_seqs=4, max_num_batched_tokens=12))
    drive.submit(request("decoding"))
    drive.step(2)
    drive.submit(GenerateRequest("new", tuple(range(50, 80)), 2, GREEDY))
    drive.step()
    stats = drive.results[-1].stats
    assert (stats.num_decoding, stats.num_prefilling) == (1, 1)
    assert (stats.num_prefill_tokens, stats.num_emitted_tokens) == (11, 1)

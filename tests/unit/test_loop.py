"""The engine's thread: what others may ask of it at any time, and what it survives.

No test waits for a time to pass: each waits for a message or for the thread itself.
"""

import logging
import queue
import threading
from collections.abc import Iterator

import pytest

from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.serial import serial_answer
from dflash.batch import Batch
from dflash.config import EngineLimits
from dflash.engine import Engine
from dflash.errors import OverloadedError, RequestError
from dflash.loop import EngineLoop
from dflash.plan import DraftPlan, PlanSignals
from dflash.request import FinishReason, GenerateRequest, SamplingParams, TokenOutput
from dflash.target import TargetOutput

PATIENCE_S = 20.0
GREEDY = SamplingParams(temperature=0.0, ignore_eos=True)


def request(request_id: str, max_tokens: int = 8, num_prompt: int = 20) -> GenerateRequest:
    return GenerateRequest(request_id, tuple(range(3, 3 + num_prompt)), max_tokens, GREEDY)


class GatedLM(HashLM):
    """Computes a step only when let through."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.fault: BaseException | None = None

    def let(self, count: int = 1) -> None:
        self.gate.release(count)

    def wait_entered(self) -> None:
        assert self.entered.acquire(timeout=PATIENCE_S)

    def forward(self, batch: Batch, taps: tuple[int, ...] = ()) -> TargetOutput:
        self.entered.release()
        assert self.gate.acquire(timeout=PATIENCE_S)
        if self.fault is not None:
            raise self.fault
        return super().forward(batch, taps)


class Rig:
    """A loop whose messages are kept, and whose clock stands still unless told."""

    def __init__(self, limits: EngineLimits | None = None) -> None:
        self.now_s = 0.0
        self.model = GatedLM()
        self.engine = Engine(self.model, limits or EngineLimits())
        self.messages: queue.Queue[TokenOutput] = queue.Queue()
        self.num_calls = 0
        self.loop = EngineLoop(
            self.engine, self.receive, stall_limit_s=10.0, clock=lambda: self.now_s
        )
        self.loop.start()

    def receive(self, outputs: tuple[TokenOutput, ...]) -> None:
        self.num_calls += 1
        for output in outputs:
            self.messages.put(output)

    def until_end(self, *request_ids: str) -> dict[str, list[TokenOutput]]:
        """Let steps through and return all messages up to the last one of each request."""
        self.model.let(10_000)
        got: dict[str, list[TokenOutput]] = {id_: [] for id_ in request_ids}
        missing = set(request_ids)
        while missing:
            output = self.messages.get(timeout=PATIENCE_S)
            got.setdefault(output.request_id, []).append(output)
            if output.finish_reason is not None:
                missing.discard(output.request_id)
        return got


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.model.let(10_000)
    rig.loop.stop()


def ids(outputs: list[TokenOutput]) -> tuple[int, ...]:
    return tuple(id_ for output in outputs for id_ in output.token_ids)


def test_requests_from_many_threads_are_each_given_their_own_answer(rig: Rig):
    requests = [request(f"r{index}", 5, 10 + index) for index in range(8)]
    threads = [threading.Thread(target=rig.loop.submit, args=(each,)) for each in requests]
    for thread in threads:
        thread.start()
    got = rig.until_end(*(each.request_id for each in requests))
    for each in requests:
        assert ids(got[each.request_id]) == serial_answer(rig.model, each).token_ids


def test_all_messages_of_a_step_come_in_one_call(rig: Rig):
    for index in range(4):
        rig.loop.submit(request(f"r{index}", 3))
    rig.model.wait_entered()
    rig.until_end(*(f"r{index}" for index in range(4)))
    assert rig.num_calls <= 4


def test_an_abort_in_a_step_frees_all_pages_before_the_next(rig: Rig):
    rig.loop.submit(request("leaves", 10))
    rig.model.wait_entered()
    rig.loop.abort("leaves")
    rig.model.let(1)
    got = rig.until_end("leaves")["leaves"]
    assert got[-1].finish_reason is FinishReason.ABORT
    assert len(ids(got)) == 1
    seen = rig.loop.snapshot()
    assert (seen.num_steps, seen.num_running, seen.num_pages_used) == (1, 0, 0)


def test_an_abort_before_the_first_step_still_says_a_last_word(rig: Rig):
    rig.loop.submit(request("busy", 2))
    rig.model.wait_entered()
    rig.loop.submit(request("leaves"))
    rig.loop.abort("leaves")
    got = rig.until_end("busy", "leaves")
    assert [output.finish_reason for output in got["leaves"]] == [FinishReason.ABORT]


def test_unknown_and_ended_ids_are_aborted_without_effect(rig: Rig):
    rig.loop.abort("never seen")
    rig.loop.submit(request("r"))
    first = rig.until_end("r")["r"]
    rig.loop.abort("r")
    rig.loop.submit(request("r"))
    assert ids(rig.until_end("r")["r"]) == ids(first)


def test_a_bad_request_is_refused_in_the_callers_thread(rig: Rig):
    with pytest.raises(RequestError, match="ids are 0 to 250"):
        rig.loop.submit(GenerateRequest("bad", (999,), 1, GREEDY))
    rig.loop.submit(request("twice"))
    with pytest.raises(RequestError, match="'twice' is in use"):
        rig.loop.submit(request("twice"))


def test_requests_in_the_mailbox_count_as_waiting():
    rig = Rig(EngineLimits(max_num_seqs=1, max_num_waiting=2))
    rig.loop.submit(request("running"))
    rig.model.wait_entered()
    for name in ("a", "b"):
        rig.loop.submit(request(name))
    with pytest.raises(OverloadedError, match="2 requests are waiting") as refusal:
        rig.loop.submit(request("c"))
    assert 1.0 <= refusal.value.retry_after_s <= 30.0
    rig.until_end("running", "a", "b")
    rig.loop.submit(request("c"))
    rig.until_end("c")
    rig.loop.stop()


def test_new_limits_hold_from_the_next_step(rig: Rig):
    rig.loop.submit(request("long", 2, 60))
    rig.model.wait_entered()
    rig.loop.reconfigure(EngineLimits(max_num_seqs=3, max_num_batched_tokens=7))
    rig.until_end("long")
    assert rig.engine.limits.max_num_batched_tokens == 7


def test_a_new_planner_decides_from_the_next_step(rig: Rig):
    seen: list[PlanSignals] = []

    class Watching:
        def plan(self, signals: PlanSignals) -> DraftPlan:
            seen.append(signals)
            return DraftPlan()

    rig.loop.submit(request("r", 6))
    rig.model.wait_entered()
    rig.loop.set_planner(Watching())
    rig.until_end("r")
    assert [[each.request_id for each in signals.decoding] for signals in seen] == [["r"]] * 5
    assert seen[0].last.num_prefill_tokens == 20
    assert [signals.last.num_decoding for signals in seen[1:]] == [1] * 4


def test_a_callback_that_raises_is_logged_once_and_serving_goes_on(rig: Rig, caplog):
    keep = rig.receive

    def raise_twice(outputs: tuple[TokenOutput, ...]) -> None:
        keep(outputs)
        if rig.num_calls <= 2:
            raise ValueError("the edge is broken")

    rig.loop._on_outputs = raise_twice
    with caplog.at_level(logging.ERROR):
        rig.loop.submit(request("r", 5))
        got = rig.until_end("r")["r"]
    assert len(ids(got)) == 5
    assert caplog.text.count("on_outputs failed") == 1


def test_draining_refuses_newcomers_and_waits_for_the_others(rig: Rig):
    rig.loop.submit(request("r", 5))
    rig.model.wait_entered()
    assert not rig.loop.drain(timeout_s=0.0)
    with pytest.raises(OverloadedError, match="is draining"):
        rig.loop.submit(request("late"))
    rig.model.let(10_000)
    assert rig.loop.drain(timeout_s=PATIENCE_S)
    assert len(ids(rig.until_end("r")["r"])) == 5


def test_stopping_ends_every_live_request_and_the_thread(rig: Rig):
    for name in ("a", "b"):
        rig.loop.submit(request(name, 400))
    rig.model.wait_entered()
    rig.model.let(10_000)
    rig.loop.stop()
    ends = {output.request_id for output in rig.messages.queue if output.finish_reason}
    assert ends == {"a", "b"}
    assert not rig.loop.health().is_healthy
    with pytest.raises(OverloadedError, match="has stopped"):
        rig.loop.submit(request("late"))


def test_health_is_good_when_idle_for_long(rig: Rig):
    rig.now_s = 1e6
    assert rig.loop.health().is_healthy
    rig.loop.submit(request("r"))
    assert rig.loop.health().is_healthy


def test_health_fails_while_a_step_does_not_end_and_recovers_when_it_does(rig: Rig):
    rig.loop.submit(request("r"))
    rig.model.wait_entered()
    rig.now_s = 9.0
    assert rig.loop.health().is_healthy
    rig.now_s = 11.0
    health = rig.loop.health()
    assert (health.is_healthy, "no step has ended for 11 s" in health.sentence) == (False, True)
    rig.until_end("r")
    assert rig.loop.health().is_healthy


def test_a_failed_step_is_survived_and_three_in_a_row_are_unhealthy(rig: Rig):
    rig.model.fault = RuntimeError("device lost")
    for count in range(1, 4):
        rig.loop.submit(request(f"r{count}"))
        got = rig.until_end(f"r{count}")[f"r{count}"]
        assert got[-1].finish_reason is FinishReason.ERROR
        assert rig.loop.health().is_healthy is (count < 3)
    assert "RuntimeError: device lost" in rig.loop.health().sentence
    rig.model.fault = None
    rig.loop.submit(request("good"))
    assert len(ids(rig.until_end("good")["good"])) == 8
    assert rig.loop.health().is_healthy


def test_books_that_do_not_add_up_end_the_thread_and_every_request(rig: Rig):
    rig.loop.submit(request("first", 1))
    rig.model.wait_entered()
    rig.engine.kv_cache._free.append(0)
    rig.until_end("first")
    rig.loop._thread.join(PATIENCE_S)
    health = rig.loop.health()
    assert (health.is_healthy, "AccountingError" in health.sentence) == (False, True)
    with pytest.raises(OverloadedError, match="has died"):
        rig.loop.submit(request("late"))


def test_requests_alive_when_the_thread_dies_are_told(rig: Rig):
    rig.loop.submit(request("orphan"))
    rig.model.wait_entered()
    rig.model.fault = KeyboardInterrupt()
    last = rig.until_end("orphan")["orphan"][-1]
    assert last.finish_reason is FinishReason.ERROR
    assert "retry" in (last.error or "")


def test_the_snapshot_sums_steps_and_tokens(rig: Rig):
    rig.loop.submit(request("r", 5))
    rig.until_end("r")
    seen = rig.loop.snapshot()
    assert (seen.num_steps, seen.num_emitted_tokens, seen.num_finished) == (5, 5, 1)
    assert (seen.num_prefill_tokens, seen.num_pages_total) == (20, 64)
    assert (seen.num_pages_cached, seen.num_pages_used) == (1, 0)


def test_an_idle_engine_looks_around_when_told_and_proves_no_books_for_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    seen: queue.Queue[PlanSignals] = queue.Queue()

    class Watching:
        def plan(self, signals: PlanSignals) -> DraftPlan:
            seen.put(signals)
            return DraftPlan()

    rig.loop.set_planner(Watching())
    checks: list[int] = []
    monkeypatch.setattr(rig.engine, "check", lambda: checks.append(1))
    for _ in range(3):
        rig.loop.look_around()
        assert not seen.get(timeout=10).decoding
    rig.loop.stop()
    # For the new planner, perhaps, and as it ends.
    assert 1 <= len(checks) <= 2

"""One engine replica: orphans, limits changed while running, health, and what it reports."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from deployments import load_progress, model_parts
from deployments import replica as replica_module
from deployments.openai.errors import ErrorCode
from deployments.replica import EngineReplica, EngineUnhealthyError
from deployments.wire import FilePart, LoadReport, Step
from dflash.config import EngineConfig, EngineLimits
from dflash.errors import CheckpointError
from dflash.request import GenerateRequest
from tests.rigs.fake_engine import FakeLoop, open_fake
from tests.rigs.http_server import open_replica


def request(name: str = "r", max_tokens: int = 5) -> GenerateRequest:
    return GenerateRequest(name, (5, 6, 7), max_tokens)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


async def steps_of(replica: EngineReplica, asked: GenerateRequest) -> list[Step]:
    return [step async for step in replica.generate(asked)]


def test_the_first_step_says_only_that_the_request_was_taken():
    async def test() -> None:
        replica, loop = await open_replica(EngineConfig())
        # Time to read each message before the next.
        loop.step_s = 0.02
        first, *rest = await steps_of(replica, request())
        assert first == Step(replica=str(os.getpid()))
        assert len([token for step in rest for token in step.token_ids]) == 5
        assert [step.is_last for step in rest] == [False] * (len(rest) - 1) + [True]
        assert rest[-1].finish_reason == "length"
        # How long it waited is told once, with the first token.
        assert [step.queue_time_s is not None for step in rest] == [True] + [False] * len(rest[1:])

    run(test())


def test_a_refusal_is_a_step_and_leaves_nothing_open():
    async def test() -> None:
        replica, loop = await open_replica(EngineConfig())
        (step,) = await steps_of(replica, request(max_tokens=10**6))
        assert step.error is not None
        assert (step.error.code, step.error.param) == (ErrorCode.INVALID_PARAMETER, "max_tokens")
        assert len(replica._streams) == 0
        assert not loop.aborted

    run(test())


def test_a_slow_reader_gets_fewer_and_larger_steps_with_the_same_tokens():
    async def test() -> None:
        replica, loop = await open_replica(EngineConfig())
        tokens: list[int] = []
        num_steps = 0
        async for step in replica.generate(request(max_tokens=64)):
            num_steps += 1
            tokens += step.token_ids
            await asyncio.sleep(0.01)
        assert tokens == list(loop._endless(request(max_tokens=64)))
        assert num_steps < 64

    run(test())


def test_a_closed_stream_is_aborted_once_and_a_finished_one_never():
    async def test() -> None:
        replica, loop = await open_replica(EngineConfig())
        await steps_of(replica, request("whole"))
        loop.may_step.clear()
        left = replica.generate(request("left"))
        await anext(left)
        await left.aclose()
        assert loop.aborted == {"left": 1}
        assert len(replica._streams) == 0

    run(test())


def test_a_stream_nobody_renews_is_ended_and_a_renewed_one_goes_on(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(replica_module, "LEASE_S", 0.2)
    monkeypatch.setattr(replica_module, "_GUARD_INTERVAL_S", 0.02)

    async def test() -> None:
        replica, loop = await open_replica(EngineConfig())
        loop.may_step.clear()
        orphan = asyncio.create_task(steps_of(replica, request("orphan")))
        read = asyncio.create_task(steps_of(replica, request("read")))
        while not orphan.done():
            replica.check_in(["read", "unknown"])
            await asyncio.sleep(0.02)
        assert (await orphan)[-1].error.code is ErrorCode.REQUEST_ABORTED
        assert loop.aborted == {"orphan": 1}
        loop.may_step.set()
        assert (await read)[-1].finish_reason == "length"

    run(test())


def test_a_valid_user_config_takes_effect_while_a_stream_runs():
    async def test() -> None:
        replica, loop = await open_replica(EngineConfig())
        loop.step_s = 0.002
        running = asyncio.create_task(steps_of(replica, request(max_tokens=50)))
        await asyncio.sleep(0.01)
        replica.reconfigure({"limits": {"max_num_seqs": 2, "max_num_waiting": 7}})
        assert replica.status().limits == EngineLimits(max_num_seqs=2, max_num_waiting=7)
        tokens = [token for step in await running for token in step.token_ids]
        assert tokens == list(loop._endless(request(max_tokens=50)))

    run(test())


@pytest.mark.parametrize(
    ("user_config", "words"),
    [
        ({"limits": {"max_num_seq": 2}}, ["max_num_seq", "max_num_seqs"]),
        ({"limits": {"max_num_seqs": 0}}, ["max_num_seqs", "1 or more"]),
        ({"limits": {"max_num_seqs": "4"}}, ["max_num_seqs", "integer"]),
        ({"limit": {}}, ["limit", "limits"]),
        ({"limits": [1]}, ["limits", "mapping"]),
        ("limits", ["user_config", "mapping"]),
    ],
    ids=str,
)
def test_an_invalid_user_config_leaves_the_old_one_in_force_and_is_reported(
    user_config: object, words: list[str]
):
    async def test() -> None:
        replica, _ = await open_replica(EngineConfig())
        replica.reconfigure({"limits": {"max_num_seqs": 3}})
        replica.reconfigure(user_config)
        status = replica.status()
        assert status.limits == EngineLimits(max_num_seqs=3)
        assert all(word in status.user_config_problem for word in words)
        replica.reconfigure({"limits": {"max_num_seqs": 4}})
        assert replica.status().limits == EngineLimits(max_num_seqs=4)
        assert replica.status().user_config_problem is None

    run(test())


def test_health_follows_the_loop():
    async def test() -> None:
        replica, loop = await open_replica(EngineConfig())
        replica.check_health()
        loop.is_healthy = False
        with pytest.raises(EngineUnhealthyError, match="no step for"):
            replica.check_health()

    run(test())


def test_the_description_has_whole_files_in_parts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model_parts, "_PART_BYTES", 1000)

    async def test() -> None:
        replica, loop = await open_replica(EngineConfig(max_model_len=99))
        card, *parts = [part async for part in replica.describe()]
        assert (card.max_model_len, card.exactness_mode) == (99, "bitwise")
        assert card.speculation == loop.engine.speculation
        assert all(isinstance(part, FilePart) for part in parts)
        assert max(len(part.content) for part in parts) == 1000
        tokenizer = b"".join(part.content for part in parts if part.name == "tokenizer.json")
        assert tokenizer == (loop.engine.model_folder / "tokenizer.json").read_bytes()

    run(test())


def test_loading_is_reported_with_phase_and_fraction_until_it_ends(
    monkeypatch: pytest.MonkeyPatch,
):
    # Many would come in the wait below, were reporting not cancelled.
    monkeypatch.setattr(load_progress, "_REPORT_INTERVAL_S", 0.001)

    async def test() -> None:
        reports: list[LoadReport] = []
        may_finish = threading.Event()

        def opener(config, on_progress, on_outputs):
            on_progress("reading weights", 0.25)
            may_finish.wait(20)
            return open_fake(config, on_progress, on_outputs)

        async def report(each: LoadReport) -> None:
            reports.append(each)
            if each.phase == "reading weights":
                may_finish.set()
            raise ConnectionError("no ingress is there yet")

        replica = EngineReplica.__new__(EngineReplica)
        await replica.__init__(EngineConfig(), opener, report)
        assert ("reading weights", 0.25) in [(each.phase, each.fraction) for each in reports]
        num_reports = len(reports)
        await asyncio.sleep(0.02)
        assert len(reports) == num_reports

    run(test())


def test_a_checkpoint_that_cannot_be_loaded_fails_the_replica_with_its_message():
    def opener(config, on_progress, on_outputs):
        raise CheckpointError("model.safetensors is truncated; copy it again")

    reports: list[LoadReport] = []

    async def report(each: LoadReport) -> None:
        reports.append(each)

    async def test() -> None:
        replica = EngineReplica.__new__(EngineReplica)
        with pytest.raises(CheckpointError, match="copy it again"):
            await replica.__init__(EngineConfig(), opener, report)
        assert reports[-1].problem == "model.safetensors is truncated; copy it again"

    run(test())


def test_the_engine_thread_ends_with_the_replica():
    async def test() -> FakeLoop:
        replica, loop = await open_replica(EngineConfig())
        replica.__del__()
        with pytest.raises(EngineUnhealthyError):
            replica.check_health()
        return loop

    assert asyncio.run(test())._is_stopped

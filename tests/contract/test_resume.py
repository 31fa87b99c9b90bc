"""A stream whose replica dies: continued with the very ids that were lost, or ended honestly."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError
from ray.serve.exceptions import BackPressureError

from deployments import client as client_module
from deployments.client import HandleClient
from deployments.openai.errors import ErrorCode
from deployments.wire import EngineStatus, Step
from dflash.config import EngineLimits
from dflash.request import GenerateRequest, SamplingParams

SILENCE = object()


class FakeResponse:
    """A handle's stream: each item is a step, or an exception to raise."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.num_cancels = 0

    def cancel(self) -> None:
        self.num_cancels += 1

    async def __aiter__(self) -> AsyncIterator[Step]:
        for item in self.items:
            if isinstance(item, Exception):
                raise item
            yield item


class FakeResult:
    """One replica's answer to a broadcast: a value, an exception to raise, or silence."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def get_async(self) -> Any:
        if self.answer is SILENCE:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class FakeHandle:
    """A deployment handle that answers by script and remembers what it was asked."""

    def __init__(self, *answers: list[Any]) -> None:
        self.responses = [FakeResponse(answer) for answer in answers]
        self.asked: list[GenerateRequest] = []
        self.broadcasts: list[tuple[Any, ...]] = []
        self.answers: list[Any] = []
        self.generate = self

    def options(self, *, stream: bool) -> "FakeHandle":
        assert stream
        return self

    def remote(self, request: GenerateRequest, _carrier: str) -> FakeResponse:
        self.asked.append(request)
        return self.responses[len(self.asked) - 1]

    def broadcast(self, *call: Any) -> "FakeHandle":
        self.broadcasts.append(call)
        return self

    async def _fetch_replica_results_async(self) -> list["FakeResult"]:
        return [FakeResult(answer) for answer in self.answers]


def steps_of(handle: FakeHandle, request: GenerateRequest) -> list[Step]:
    async def collect() -> list[Step]:
        return [step async for step in HandleClient(handle).generate(request)]

    return asyncio.run(collect())


def request(**sampling: Any) -> GenerateRequest:
    return GenerateRequest("r", (1, 2), 10, SamplingParams(**sampling), seed=77)


DEATHS = [ActorDiedError(), ActorUnavailableError("lost", None)]


@pytest.mark.parametrize("death", DEATHS, ids=lambda death: type(death).__name__)
def test_what_is_left_is_asked_of_another_replica_at_the_same_positions(death: Exception):
    handle = FakeHandle(
        [Step(), Step((10, 11)), Step((12,)), death],
        [Step(), Step((13,)), Step((14,), finish_reason="stop")],
    )

    steps = steps_of(handle, request(min_tokens=5, repetition_penalty=1.2))

    assert [step.token_ids for step in steps] == [(), (10, 11), (12,), (), (13,), (14,)]
    first, second = handle.asked
    assert second.request_id != first.request_id
    assert second == replace(first, request_id=second.request_id, emitted_token_ids=(10, 11, 12))
    assert [response.num_cancels for response in handle.responses] == [0, 0]


def test_a_request_that_every_replica_dies_of_ends_with_an_error():
    handle = FakeHandle(*[[Step(), ActorDiedError()]] * 10)

    *_, last = steps_of(handle, request())

    assert last.error.code is ErrorCode.ENGINE_FAILURE
    assert len(handle.asked) == 4


FULL = BackPressureError(5, 5, retry_after_s=4)


def test_replicas_that_stay_full_are_a_full_queue(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "_PLACING_S", 0.1)
    handle = FakeHandle(*[[FULL]] * 100)

    (step,) = steps_of(handle, request())

    assert (step.error.code, step.error.retry_after_s) == (ErrorCode.QUEUE_FULL, 4)
    assert len(handle.asked) > 1


def test_a_queue_that_is_full_for_a_moment_costs_no_request_its_answer():
    handle = FakeHandle([FULL], [FULL], [Step(), Step((10,), finish_reason="length")])

    steps = steps_of(handle, request())

    assert [step.token_ids for step in steps] == [(), (10,)]
    # Serve ended the refused ones itself.
    assert [response.num_cancels for response in handle.responses] == [0, 0, 0]


def test_an_exception_in_the_replica_is_an_engine_failure_without_its_traceback():
    failure = RayTaskError("generate", "Traceback: secret", ValueError("secret"))

    (step,) = steps_of(FakeHandle([failure]), request())

    assert step.error.code is ErrorCode.ENGINE_FAILURE
    assert "secret" not in step.error.message


def test_leaving_a_stream_cancels_it_once_and_checks_in_for_it_no_more():
    handle = FakeHandle([Step(), Step((10,)), Step((11,))])

    async def test() -> None:
        client = HandleClient(handle)
        steps = client.generate(request())
        await anext(steps)
        await client.check_in()
        await steps.aclose()
        await client.check_in()

    asyncio.run(test())
    assert handle.broadcasts == [("check_in", ("r",), (), None), ("check_in", (), (), None)]
    assert handle.responses[0].num_cancels == 1


def test_a_resumed_request_is_checked_in_under_its_new_name_only():
    handle = FakeHandle([Step(), Step((10,)), ActorDiedError()], [Step(), Step((11,))])

    async def test() -> None:
        client = HandleClient(handle)
        steps = client.generate(request())
        while (await anext(steps)).token_ids != (11,):
            pass
        await client.check_in()
        await steps.aclose()

    asyncio.run(test())
    assert handle.broadcasts == [("check_in", (handle.asked[1].request_id,), (), None)]


def test_checking_in_returns_the_replicas_that_answered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "_ANSWER_TIMEOUT_S", 0.01)
    status = EngineStatus(True, "fine", 1, 0, 0, 0, 0, 0, 0, 0, EngineLimits(), None)
    handle = FakeHandle()
    handle.answers = [SILENCE, ActorDiedError(), status]

    assert asyncio.run(HandleClient(handle).check_in()) == (status,)


def test_replicas_are_told_each_others_names_which_orders_may_use():
    status = EngineStatus(True, "fine", 1, 0, 0, 0, 0, 0, 0, 0, EngineLimits(), None, replica="a")
    handle = FakeHandle()
    handle.answers = [status, replace(status, pid=2, replica="b")]

    async def test() -> None:
        client = HandleClient(handle)
        await client.check_in()
        await client.check_in()

    asyncio.run(test())
    assert handle.broadcasts == [("check_in", (), (), None), ("check_in", (), ("a", "b"), None)]

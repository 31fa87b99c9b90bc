"""The closed set of errors: each can happen, each is documented, each has one form."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from deployments.openai.error_kinds import render_documentation
from deployments.openai.errors import ApiError, ErrorCode
from dflash.errors import OUT_OF_MEMORY, OverloadedError
from tests.rigs.http_server import FakeServer

CHAT = {"model": "fake", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
PATH = "/v1/chat/completions"


def overload(server: FakeServer) -> None:
    server.loop.overload = OverloadedError("the queue is full", 2.0)


def fail(server: FakeServer) -> None:
    server.loop.failure = "a page was lost"


def stall(server: FakeServer) -> None:
    server.loop.may_step.clear()


def starve(server: FakeServer) -> None:
    server.loop.failure = OUT_OF_MEMORY


def break_surface(server: FakeServer) -> None:
    def script(_request):
        raise RuntimeError("a fault of ours")

    server.loop.script = script


def nothing(_server: FakeServer) -> None:
    pass


def post(**fields) -> Callable[[httpx.Client], httpx.Response]:
    return lambda http: http.post(PATH, json={**CHAT, **fields})


PROVOKED: dict[ErrorCode, tuple[Callable, Callable]] = {
    ErrorCode.INVALID_JSON: (nothing, lambda http: http.post(PATH, json=[])),
    ErrorCode.INVALID_PARAMETER: (nothing, post(temperature=-1)),
    ErrorCode.UNSUPPORTED_PARAMETER: (nothing, post(regex="a+")),
    ErrorCode.CONTEXT_LENGTH_EXCEEDED: (nothing, post(max_tokens=512)),
    ErrorCode.MODEL_NOT_FOUND: (nothing, lambda http: http.get("/v1/models/other/one")),
    ErrorCode.ROUTE_NOT_FOUND: (nothing, lambda http: http.get("/v1/nope")),
    ErrorCode.METHOD_NOT_ALLOWED: (nothing, lambda http: http.get(PATH)),
    ErrorCode.REQUEST_TOO_LARGE: (nothing, post(user="a" * 5_000_000)),
    ErrorCode.UNSUPPORTED_MEDIA_TYPE: (nothing, lambda http: http.post(PATH, data={"a": "b"})),
    ErrorCode.REQUEST_TIMEOUT: (
        stall,
        lambda http: http.post(PATH, json=CHAT, headers={"x-request-timeout-ms": "30"}),
    ),
    ErrorCode.QUEUE_FULL: (overload, post()),
    ErrorCode.PIN_NOT_FOUND: (nothing, lambda http: http.delete("/policy/pins/none")),
    ErrorCode.OUT_OF_MEMORY: (starve, post()),
    ErrorCode.ENGINE_FAILURE: (fail, post()),
    ErrorCode.INTERNAL_ERROR: (break_surface, post()),
}
# Provoked where their cause can be: test_readiness.py, test_streaming.py, test_keys.py,
# test_key_limits.py and test_operators.py.
PROVOKED_ELSEWHERE = {
    ErrorCode.SERVER_LOADING,
    ErrorCode.REQUEST_ABORTED,
    ErrorCode.INVALID_API_KEY,
    ErrorCode.FORBIDDEN_SCOPE,
    ErrorCode.RATE_LIMIT_EXCEEDED,
    ErrorCode.SERVER_DRAINING,
}


@pytest.mark.parametrize("code", PROVOKED)
def test_each_code_can_be_provoked_and_has_the_one_form(
    server: FakeServer, http: httpx.Client, code: ErrorCode
):
    arrange, ask = PROVOKED[code]
    arrange(server)

    answer = ask(http)

    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert answer.status_code == ApiError(code, "").status


def test_every_code_is_provoked_by_some_test():
    assert set(PROVOKED) | PROVOKED_ELSEWHERE == set(ErrorCode)


def test_the_documentation_is_what_the_code_says():
    page = Path(__file__).parents[2] / "docs" / "errors.md"
    assert page.read_text(encoding="utf-8") == render_documentation()


def test_a_wrong_method_says_which_would_do(http: httpx.Client):
    answer = http.delete("/v1/completions")
    assert answer.headers["allow"] == "POST"
    assert "POST" in answer.json()["error"]["message"]


def test_a_fault_of_ours_tells_a_stranger_nothing_of_it(server: FakeServer, http: httpx.Client):
    break_surface(server)
    assert "a fault of ours" not in http.post(PATH, json=CHAT).text

"""One served fake engine a module; each test finds it as new."""

from collections.abc import Iterator

import httpx
import openai
import pytest

from tests.rigs.http_server import FakeServer, serving


@pytest.fixture(scope="module")
def module_server() -> Iterator[FakeServer]:
    with serving() as server:
        yield server


@pytest.fixture
def server(module_server: FakeServer) -> FakeServer:
    loop = module_server.loop
    loop.script = loop.failure = loop.overload = None
    loop.tokens_per_step, loop.step_s, loop.is_healthy = 1, 0.0, True
    loop.may_step.set()
    loop.submitted.clear()
    loop.aborted.clear()
    return module_server


@pytest.fixture
def openai_client(server: FakeServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture
def http(server: FakeServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.base_url, timeout=20) as client:
        yield client

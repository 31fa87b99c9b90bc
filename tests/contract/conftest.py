"""One served fake engine a module; each test finds it as new."""

from collections.abc import Iterator

import httpx
import openai
import pytest

from tests.rigs import http_server as rig
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


# A client opens its store of certificates at birth, which takes longer than most tests.
@pytest.fixture(scope="module")
def module_openai_client(module_server: FakeServer) -> Iterator[openai.OpenAI]:
    base_url = f"{module_server.base_url}/v1"
    with openai.OpenAI(base_url=base_url, api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def module_http(module_server: FakeServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=module_server.base_url, timeout=20) as client:
        yield client


@pytest.fixture
def openai_client(server: FakeServer, module_openai_client: openai.OpenAI) -> openai.OpenAI:
    return module_openai_client


@pytest.fixture
def http(server: FakeServer, module_http: httpx.Client) -> httpx.Client:
    return module_http


@pytest.fixture
def one_step_a_message() -> Iterator[None]:
    with rig.one_step_a_message():
        yield

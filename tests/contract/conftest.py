"""One served fake engine a module; each test finds it as new."""

from collections.abc import Iterator

import httpx
import openai
import pytest

from deployments.streams import StepInbox
from deployments.wire import Step
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
def one_step_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a busy machine's reader from getting several steps in one message."""

    take_all = StepInbox.take

    async def take_one(inbox: StepInbox) -> Step:
        await inbox._has_some.wait()
        inbox._outputs, later = inbox._outputs[:1], inbox._outputs[1:]
        step = await take_all(inbox)
        if later:
            inbox._outputs = later
            inbox._has_some.set()
        return step

    monkeypatch.setattr(StepInbox, "take", take_one)

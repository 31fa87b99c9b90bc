"""Probes and requests while a model loads, when it is ready, and when its engine is not."""

import asyncio
import os
from collections.abc import AsyncGenerator
from dataclasses import replace

import httpx
import pytest

from deployments import watch as watch_module
from deployments.gateway import Gateway
from deployments.http import create_app
from deployments.ingress import running
from deployments.operators.report import Briefing
from deployments.watch import EngineWatch
from deployments.wire import EngineStatus, FilePart, LoadReport, ModelCard
from dflash.config import EngineConfig
from tests.rigs.fake_engine import FakeLoop
from tests.rigs.http_server import MODEL, LocalClient, open_replica

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}


class LoadingClient(LocalClient):
    """A client whose replica answers only once it is said to be loaded, as Serve's handle does."""

    def __init__(self, replica) -> None:
        super().__init__(replica)
        self.is_loaded = asyncio.Event()
        self.is_gone = False
        self.is_alone = True
        self.missed = asyncio.Event()
        self.num_check_ins = 0

    async def next_check_in(self) -> None:
        """Wait until a check-in that began after this call has been taken."""
        enough = self.num_check_ins + 2
        for _ in range(4000):
            if self.num_check_ins >= enough:
                return
            await asyncio.sleep(0.005)
        raise AssertionError("nobody checked in")

    async def describe(self) -> AsyncGenerator[ModelCard | FilePart, None]:
        await self.is_loaded.wait()
        async for part in super().describe():
            yield part

    async def check_in(self, briefing: Briefing) -> tuple[EngineStatus, ...]:
        self.num_check_ins += 1
        if self.is_gone:
            self.missed.set()
            raise ConnectionError("the replica died")
        (status,) = await super().check_in(briefing)
        other = replace(status, pid=-1, is_healthy=False, sentence="the other is stalled")
        return (status,) if self.is_alone else (status, other)


class Surface:
    """The app without a socket, and what it watches."""

    def __init__(self, client: LoadingClient, loop: FakeLoop) -> None:
        self.client = client
        self.loop = loop
        self.now_s = 1000.0
        self.watch = EngineWatch(client, lambda: self.now_s)
        app = create_app(Gateway(client, self.watch, MODEL))
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")

    async def get(self, path: str) -> httpx.Response:
        return await self.http.get(path)

    async def becomes(self, path: str, status: int) -> httpx.Response:
        for _ in range(4000):
            answer = await self.get(path)
            if answer.status_code == status:
                return answer
            await asyncio.sleep(0.005)
        raise AssertionError(f"{path} never answered {status}")


def on_surface(test) -> None:
    async def main() -> None:
        replica, loop = await open_replica(EngineConfig())
        surface = Surface(LoadingClient(replica), loop)
        async with running(surface.watch.run()), surface.http:
            await asyncio.wait_for(test(surface), 30)
        replica.__del__()

    asyncio.run(main())


@pytest.fixture(autouse=True)
def _quick_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "CHECK_IN_INTERVAL_S", 0.01)


def test_while_loading_the_process_lives_and_startup_shows_phase_and_percent():
    async def test(surface: Surface) -> None:
        assert (await surface.get("/livez")).status_code == 200
        first = await surface.get("/startupz")
        assert (first.status_code, first.json()["phase"]) == (503, "starting")
        surface.watch.note(LoadReport("1", "reading weights", 0.42, 3.21))
        answer = await surface.get("/startupz")
        assert answer.status_code == 503
        assert answer.json() == {
            "started": False,
            "phase": "reading weights",
            "percent": 42,
            "seconds": 3.2,
            "problem": None,
        }
        for path in ("/readyz", "/health"):
            ready = await surface.get(path)
            assert (ready.status_code, ready.json()["reason"]) == (503, "loading")

    on_surface(test)


@pytest.mark.parametrize("path", ["/v1/models", f"/v1/models/{MODEL}", "/v1/chat/completions"])
def test_while_loading_requests_are_refused_with_a_time_to_retry(path: str):
    async def test(surface: Surface) -> None:
        surface.watch.note(LoadReport("1", "reading weights", 0.42, 3.2))
        for stream in (False, True):
            body = {**CHAT, "stream": stream}
            method = "POST" if path.endswith("completions") else "GET"
            answer = await surface.http.request(
                method, path, json=body if method == "POST" else None
            )
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            error = answer.json()["error"]
            assert error["code"] == "server_loading"
            assert "reading weights, 42 percent" in error["message"]

    on_surface(test)


def test_a_model_that_cannot_be_loaded_is_named_wherever_one_looks():
    async def test(surface: Surface) -> None:
        surface.watch.note(LoadReport("1", "opening", 0.0, 0.1, "engine.model is '/x': no such"))
        for path in ("/startupz", "/readyz", "/v1/models"):
            answer = await surface.get(path)
            assert answer.status_code == 503
            assert "engine.model is '/x': no such" in answer.text

    on_surface(test)


def test_a_loaded_model_makes_everything_ready():
    async def test(surface: Surface) -> None:
        surface.client.is_loaded.set()
        await surface.becomes("/readyz", 200)
        started = await surface.get("/startupz")
        assert (started.status_code, started.json()["percent"]) == (200, 100)
        answer = await surface.http.post("/v1/chat/completions", json=CHAT)
        assert answer.json()["usage"]["completion_tokens"] == 2

    on_surface(test)


def test_a_stalled_engine_is_not_ready_and_says_why_and_recovers():
    async def test(surface: Surface) -> None:
        surface.client.is_loaded.set()
        await surface.becomes("/health", 200)
        surface.loop.is_healthy = False
        answer = await surface.becomes("/health", 503)
        assert answer.json()["reason"] == "no step for 99 s"
        surface.loop.is_healthy = True
        await surface.becomes("/health", 200)

    on_surface(test)


def test_a_dead_replica_is_not_ready_and_its_successors_loading_refuses_requests():
    async def test(surface: Surface) -> None:
        surface.client.is_loaded.set()
        await surface.becomes("/readyz", 200)
        surface.client.is_gone = True
        surface.now_s += 11
        answer = await surface.becomes("/readyz", 503)
        assert answer.json()["reason"] == "no engine replica answers"
        surface.watch.note(LoadReport("2", "packing weights", 0.5, 1.0))
        refused = await surface.http.post("/v1/chat/completions", json=CHAT)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_loading")
        surface.client.is_gone = False
        await surface.becomes("/readyz", 200)
        answer = await surface.http.post("/v1/chat/completions", json=CHAT)
        assert answer.status_code == 200

    on_surface(test)


def test_a_replica_that_misses_check_ins_stays_ready_for_its_grace_and_no_longer():
    async def test(surface: Surface) -> None:
        surface.client.is_loaded.set()
        await surface.becomes("/readyz", 200)
        surface.client.is_gone = True
        await surface.client.missed.wait()
        surface.now_s += 9
        surface.watch.note(LoadReport("2", "packing weights", 0.5, 1.0))
        assert (await surface.get("/readyz")).status_code == 200
        answer = await surface.http.post("/v1/chat/completions", json=CHAT)
        assert answer.status_code == 200
        surface.now_s += 2
        assert (await surface.get("/readyz")).status_code == 503
        answer = await surface.http.post("/v1/chat/completions", json=CHAT)
        assert answer.status_code == 503

    on_surface(test)


def test_a_silent_replicas_last_status_is_kept_beside_those_that_answer():
    async def test(surface: Surface) -> None:
        surface.client.is_loaded.set()
        surface.client.is_alone = False
        ready = await surface.becomes("/readyz", 200)
        assert len(ready.json()["engines"]) == 2
        surface.client.is_alone = True
        surface.now_s += 9
        await surface.client.next_check_in()
        assert {status.pid for status in surface.watch.statuses} > {-1}
        surface.now_s += 2
        await surface.client.next_check_in()
        assert [status.pid for status in surface.watch.statuses] == [os.getpid()]
        assert (await surface.get("/readyz")).status_code == 200

    on_surface(test)


def test_another_replica_that_loads_beside_a_ready_one_refuses_nobody():
    async def test(surface: Surface) -> None:
        surface.client.is_loaded.set()
        await surface.becomes("/readyz", 200)
        surface.watch.note(LoadReport("2", "packing weights", 0.5, 1.0))
        answer = await surface.http.post("/v1/chat/completions", json=CHAT)
        assert answer.status_code == 200

    on_surface(test)


def test_the_version_names_what_the_numbers_depend_on():
    async def test(surface: Surface) -> None:
        body = (await surface.get("/version")).json()
        assert set(body) == {"version", "torch", "ray", "python"}

    on_surface(test)

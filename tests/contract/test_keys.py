"""Who is let in: every path but the probes asks for a key that may do what the path is for."""

import asyncio
import base64
import logging
import re
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from fastapi import FastAPI, Response
from starlette.routing import Route

from deployments.gateway import Gateway
from deployments.guard.guard import Guard
from deployments.guard.keys import new_key
from deployments.guard.scopes import PROBES
from deployments.guard.settings import GuardSettings
from deployments.http import create_app
from deployments.replica import EngineReplica
from deployments.telemetry.front import TelemetryFront
from deployments.telemetry.process import ingress_telemetry
from deployments.watch import EngineWatch
from deployments.wire import LoadReport
from dflash.config import EngineConfig
from tests.rigs.http_server import (
    MODEL,
    FakeServer,
    LocalClient,
    open_replica,
)
from tests.rigs.keyed_server import KeyedServer, serving_with_keys

CHAT = {"model": "fake", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
SCOPES = {name: (name,) for name in ("infer", "metrics", "status", "admin")}
ROUTES = ["/v1/models", "/v1/models/fake", "/v1/chat/completions", "/v1/completions", "/version"]
# What frameworks open by themselves, what another spelling of a path could open, and what is new.
STRANGE = [
    "/docs",
    "/redoc",
    "/openapi.json",
    "/favicon.ico",
    "/",
    "*",
    "/livez/",
    "//livez",
    "/v2",
]
STRANGE += ["/LIVEZ", "/livez/../v1/models", "/v1/models/../../livez", "/%6civez/x", "/readyz/x"]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedServer]:
    with serving_with_keys(tmp_path_factory.mktemp("keys"), SCOPES) as served:
        yield served


@pytest.fixture
def http(keyed: KeyedServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=keyed.server.base_url, timeout=20) as client:
        yield client


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "DELETE", "TRACE"])
@pytest.mark.parametrize("path", ROUTES + STRANGE)
def test_without_a_key_every_path_and_method_is_refused(http: httpx.Client, method: str, path: str):
    # Past the client, which tidies paths: what a server makes of untidy ones is the question.
    answer = http.request(method, "/", extensions={"target": path.encode()})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    if method != "HEAD":
        assert answer.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("path", sorted(PROBES))
def test_probes_ask_for_no_key_and_tell_strangers_no_more_than_they_need(
    keyed: KeyedServer, http: httpx.Client, path: str
):
    answer = http.get(path)
    assert answer.status_code == 200
    assert not {"engines", "keys_problem", "reason"} & set(answer.json())
    for name in ("infer", "status", "admin"):
        body = http.get(path, headers=keyed.bearer(name)).json()
        may_see = name != "infer" and path in ("/readyz", "/health")
        assert ("engines" in body) is may_see


WANTED = [
    ("GET", "/v1/models", "infer"),
    ("GET", "/v1/nope", "infer"),
    ("POST", "/v1/completions", "infer"),
    ("GET", "/metrics", "metrics"),
    ("GET", "/version", "status"),
    ("GET", "/policy", "status"),
    ("GET", "/policy/decisions", "status"),
    ("GET", "/status", "status"),
    ("POST", "/policy/pins", "admin"),
    ("DELETE", "/policy/pins/1", "admin"),
    ("POST", "/metrics", "admin"),
    ("GET", "/admin/memory", "admin"),
    ("GET", "/policyx", "admin"),
    ("GET", "/whatever/is/new", "admin"),
]


@pytest.mark.parametrize(("method", "path", "wanted"), WANTED)
def test_a_key_does_what_its_scopes_say_and_admin_does_everything(
    keyed: KeyedServer, http: httpx.Client, method: str, path: str, wanted: str
):
    for name in SCOPES:
        answer = http.request(method, path, headers=keyed.bearer(name))
        if name in (wanted, "admin"):
            assert answer.status_code not in (401, 403)
        else:
            assert answer.status_code == 403
            error = answer.json()["error"]
            assert error["code"] == "forbidden_scope"
            assert repr(wanted) in error["message"]


def client_of(keyed: KeyedServer, key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{keyed.server.base_url}/v1", api_key=key, max_retries=0)


def test_the_openai_client_raises_what_it_raises_for_its_own_service(keyed: KeyedServer):
    with client_of(keyed, keyed.keys["infer"]) as client:
        assert client.chat.completions.create(**CHAT).usage.completion_tokens == 2
    with client_of(keyed, new_key()) as client, pytest.raises(openai.AuthenticationError) as no:
        client.chat.completions.create(**CHAT)
    assert no.value.code == "invalid_api_key"
    key = keyed.keys["metrics"]
    with client_of(keyed, key) as client, pytest.raises(openai.PermissionDeniedError) as no:
        client.chat.completions.create(**CHAT)
    assert no.value.code == "forbidden_scope"


def test_only_the_whole_key_alone_in_its_header_counts(keyed: KeyedServer, http: httpx.Client):
    key = keyed.keys["infer"]
    wrong = [key, f"Token {key}", f"Bearer {key[:-1]}", f"Bearer {key}x", f"Bearer {key.upper()}"]
    wrong += [
        "Bearer",
        "Basic " + base64.b64encode(f"x:{key}".encode()).decode(),
        f"Bearer {'x' * 5000}",
        "Bearer é",
        f"Bearer {key} {key}",
    ]
    for value in wrong:
        answer = http.get("/v1/models", headers={"authorization": value.encode("latin-1")})
        assert answer.status_code == 401, value
        assert key not in answer.text
    twice = [("authorization", f"Bearer {key}"), ("authorization", "Bearer other")]
    assert http.get("/v1/models", headers=twice).status_code == 401
    assert http.get(f"/v1/models?api_key={key}").status_code == 401
    for value in (f"bearer {key}", f"BEARER   {key}"):
        assert http.get("/v1/models", headers={"authorization": value}).status_code == 200


def app_of(keyed: KeyedServer, replica: EngineReplica) -> FastAPI:
    client = LocalClient(replica)
    guard = Guard(GuardSettings(str(keyed.file)))
    return create_app(Gateway(client, EngineWatch(client), MODEL), guard=guard)


def test_a_refused_request_costs_neither_its_body_nor_a_token(keyed: KeyedServer):
    """Its body is not even received: the connection would wait for it for ever."""
    sent: list[dict[str, Any]] = []

    async def test() -> None:
        replica, _ = await open_replica(EngineConfig())
        app = app_of(keyed, replica)

        async def receive() -> dict[str, Any]:
            raise AssertionError("somebody asked for the body")

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        path = "/v1/completions"
        headers = [(b"content-type", b"application/json"), (b"authorization", b"Bearer nope")]
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
        await app({**scope, "query_string": b"", "root_path": ""}, receive, send)
        socket = {"type": "websocket", "path": "/v1/realtime", "headers": headers}
        await app({**socket, "query_string": b"", "root_path": ""}, receive, send)
        replica.__del__()

    asyncio.run(test())

    assert sent[0]["status"] == 401
    assert sent[-1] == {"type": "websocket.close", "code": 1008}


def test_under_a_route_prefix_the_same_paths_are_open_and_no_others(keyed: KeyedServer):
    async def test() -> list[int]:
        replica, _ = await open_replica(EngineConfig())
        transport = httpx.ASGITransport(app_of(keyed, replica), root_path="/small")
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            paths = ("/small/livez", "/small/v1/models", "/small/small/livez", "/smallx/livez")
            found = [(await http.get(path)).status_code for path in paths]
        replica.__del__()
        return found

    assert asyncio.run(test()) == [200, 401, 401, 401]


def test_every_route_there_is_asks_for_a_key_but_the_probes(keyed: KeyedServer, http: httpx.Client):
    routes = app_of(keyed, keyed.server.replica).routes
    paths = {re.sub(r"\{[^}]*\}", "1", route.path) for route in routes if isinstance(route, Route)}
    assert {"/v1/models", "/policy", "/admin/drain", "/status", "/openapi.json"} <= paths
    answers = {path: http.get(path).status_code for path in paths}
    assert {path for path, status in answers.items() if status != 401} == PROBES


def test_the_status_page_asks_people_for_a_key_and_programs_are_refused(
    keyed: KeyedServer, http: httpx.Client
):
    html = {"accept": "text/html"}
    asked = http.get("/status", headers=html)
    assert asked.status_code == 401
    assert asked.headers["content-type"].startswith("text/html")
    assert asked.text.startswith("<!doctype html>")
    assert http.get("/status").json()["error"]["code"] == "invalid_api_key"
    assert http.get("/status", headers=html | keyed.bearer("status")).status_code == 200


def test_a_browser_without_a_key_is_shown_the_page_that_asks_for_one(keyed: KeyedServer):
    page = Response("who are you?", 401, media_type="text/html")
    app = FastAPI()
    Guard(GuardSettings(str(keyed.file))).stand_before(app, {"/status": page})
    app.add_middleware(TelemetryFront, telemetry=ingress_telemetry("fake", "front"))

    async def test() -> list[tuple[int, bool]]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            html = {"accept": "text/html,*/*"}
            asked = [
                await http.get("/status", headers=html),
                await http.get("/status"),
                await http.post("/status", headers=html),
                await http.get("/policy", headers=html),
                await http.get("/status", headers=html | keyed.bearer("infer")),
            ]
        assert {each.headers.get("www-authenticate") for each in asked[:4]} == {
            'Bearer realm="dflash-serve"'
        }
        return [(each.status_code, each.text == "who are you?") for each in asked]

    assert asyncio.run(test()) == [
        (401, True),
        (401, False),
        (401, False),
        (401, False),
        (403, False),
    ]


def test_why_a_model_cannot_be_loaded_is_told_to_whoever_may_see_the_status(keyed: KeyedServer):
    client = LocalClient(keyed.server.replica)
    watch = EngineWatch(client)
    watch.note(LoadReport("1", "opening", 0.0, 0.1, "engine.model is '/home/ana/x': no such"))
    app = create_app(Gateway(client, watch, MODEL), guard=Guard(GuardSettings(str(keyed.file))))

    async def test() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            for path in ("/startupz", "/readyz"):
                for headers in ({}, keyed.bearer("infer")):
                    assert "/home/ana" not in (await http.get(path, headers=headers)).text
                assert "/home/ana" in (await http.get(path, headers=keyed.bearer("status"))).text
            assert "ask with a key" in (await http.get("/startupz")).json()["problem"]

    asyncio.run(test())


def test_no_key_is_ever_in_a_log_line_an_answer_or_what_a_key_prints_as(
    keyed: KeyedServer, http: httpx.Client, caplog: pytest.LogCaptureFixture
):
    seen: list[str] = []
    with caplog.at_level(logging.DEBUG):
        for key in [*keyed.keys.values(), new_key()]:
            for path in [*ROUTES, *sorted(PROBES), "/docs"]:
                answer = http.get(path, headers={"authorization": f"Bearer {key}"})
                seen += [answer.text, str(answer.headers)]
    ours = [line for line in caplog.records if not line.name.startswith(("http", "openai"))]
    seen += [line.getMessage() for line in ours]
    seen.append(repr(vars(keyed.server)))
    assert not [text for text in seen for key in keyed.keys.values() if key in text]


def test_where_no_key_is_set_nobody_needs_one(module_server: FakeServer):
    answer = httpx.get(f"{module_server.base_url}/readyz")
    assert answer.json()["engines"]
    headers = {"authorization": "Bearer whatever"}
    assert httpx.get(f"{module_server.base_url}/v1/models", headers=headers).status_code == 200

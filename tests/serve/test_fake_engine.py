"""The application under a real local Ray, over a scripted engine: what only Ray can break."""

import asyncio
import copy
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from deployments.guard.keys import new_key
from tests.rigs.fake_app import MODEL
from tests.rigs.fake_engine import LETTERS
from tests.rigs.http_server import eventually
from tests.rigs.keyed_server import entry, write_keys
from tests.rigs.otlp_receiver import Received, ReceivedSpan, receiving
from tests.rigs.serve_process import FAST_MODE, ServeProcess, serve_run

MODES = {"default": {}, "fast": FAST_MODE}
# One application asks for a key; the others are sent it too, and take no notice.
KEY = new_key()
KEYS_FILE = Path(tempfile.mkdtemp(prefix="keys-")) / "keys.yaml"
BEARER = {"authorization": f"Bearer {KEY}"}


def application(name: str, route: str, args: dict[str, Any], **engine: Any) -> dict[str, Any]:
    cpus = {"ray_actor_options": {"num_cpus": 0.1}}
    return {
        "name": name,
        "route_prefix": route,
        "import_path": "tests.rigs.fake_app:build",
        "args": args,
        "deployments": [
            {"name": "Ingress", "max_ongoing_requests": 1000, **cpus},
            {"name": "Engine", "health_check_period_s": 1, **cpus, **engine},
        ],
    }


CONFIG = {
    "proxy_location": "HeadOnly",
    "applications": [
        application(
            "main",
            "/",
            {"load_s": 2.0, "step_s": 0.01},
            max_ongoing_requests=100,
            num_replicas=2,
            user_config={"limits": {"max_num_seqs": 16}},
        ),
        application(
            "small",
            "/small",
            {"load_s": 0.0, "step_s": 0.3, "keys_file": str(KEYS_FILE)},
            max_ongoing_requests=4,
            max_queued_requests=8,
        ),
        application("broken", "/broken", {"problem": "model.safetensors is truncated"}),
    ],
}


@pytest.fixture(scope="module")
def collector() -> Iterator[Received]:
    with receiving() as received:
        yield received


@pytest.fixture(scope="module", params=MODES)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, collector: Received
) -> Iterator[ServeProcess]:
    write_keys(KEYS_FILE, entry("ana", KEY, "infer", "status"))
    with serve_run(
        copy.deepcopy(CONFIG),
        tmp_path_factory.mktemp("serve"),
        environment={
            **MODES[request.param],
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        },
        ready_paths=("/readyz", "/small/readyz"),
    ) as process:
        yield process


@pytest.fixture
def client(served: ServeProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{served.base_url}/v1", api_key="any", max_retries=0, timeout=60
    ) as client:
        yield client


def engines(served: ServeProcess, route: str = "") -> list[dict[str, Any]]:
    url = f"{served.base_url}{route}/readyz"
    return httpx.get(url, headers=BEARER, timeout=10).json()["engines"]


def num_running(served: ServeProcess, route: str = "") -> int:
    return sum(engine["num_running"] for engine in engines(served, route))


def limits_of(served: ServeProcess) -> list[int]:
    return [engine["limits"]["max_num_seqs"] for engine in engines(served)]


def expected_text(num_prompt: int, num_tokens: int, seed: int) -> str:
    """Return what the fake says: a function of seed and absolute position alone."""
    positions = range(num_prompt, num_prompt + num_tokens)
    return "".join(LETTERS[(position * 7 + seed) % 26] for position in positions)


def test_loading_is_visible_and_refused_with_a_time_to_retry(served: ServeProcess):
    refused = [answer for answer in served.startup if answer.status_code == 503]
    assert refused
    assert refused[0].json()["reason"] == "loading"


def test_a_model_that_cannot_be_loaded_is_named_to_whoever_asks(served: ServeProcess):
    def problem() -> str | None:
        return httpx.get(f"{served.base_url}/broken/startupz").json()["problem"]

    assert eventually(lambda: problem() == "model.safetensors is truncated")
    assert httpx.get(f"{served.base_url}/readyz").status_code == 200


def test_a_trace_goes_through_all_processes_and_metrics_come_from_each(
    served: ServeProcess, collector: Received
):
    trace_id = os.urandom(16).hex()
    body = {"model": MODEL, "prompt": "promptword", "max_tokens": 5}

    httpx.post(
        f"{served.base_url}/v1/completions",
        json=body,
        headers={"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"},
    )

    def spans() -> list[ReceivedSpan]:
        return [span for span in collector.spans if span.trace_id == trace_id]

    assert eventually(lambda: len(spans()) == 2)
    front, engine = sorted(spans(), key=lambda span: span.name, reverse=True)
    assert (front.name, front.parent_id) == (f"text_completion {MODEL}", "b7ad6b7169203331")
    assert (engine.name, engine.parent_id) == ("engine", front.span_id)
    assert engine.resource["service.instance.id"] in front.attributes["dflash.replicas"]
    assert eventually(lambda: "dflash_num_requests_running" in collector.metrics)
    assert eventually(lambda: "dflash_time_to_first_token_seconds" in collector.metrics)
    assert not any(b"promptword" in body for body in collector.bodies)
    assert "dflash_http_requests_total{" in httpx.get(f"{served.base_url}/metrics").text


def test_the_openai_client_gets_whole_answers_and_streams(client: openai.OpenAI):
    asked = {"model": "fake", "prompt": "x" * 5, "max_tokens": 30, "seed": 3}

    whole = client.completions.create(**asked)
    with client.completions.create(**asked, stream=True) as stream:
        chunks = list(stream)

    text = expected_text(whole.usage.prompt_tokens, 30, 3)
    assert whole.choices[0].text == text
    assert "".join(chunk.choices[0].text for chunk in chunks) == text
    assert chunks[-1].choices[0].finish_reason == "length"
    assert len(chunks) > 10


def test_errors_keep_their_form_and_status_through_ray(served: ServeProcess):
    for path, status, code in (
        ("/v1/nope", 404, "route_not_found"),
        ("/v1/completions", 405, "method_not_allowed"),
        ("/v1/models/other", 404, "model_not_found"),
    ):
        answer = httpx.get(served.base_url + path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    bad = httpx.post(f"{served.base_url}/v1/completions", json={"model": "fake", "prompt": []})
    assert (bad.status_code, bad.json()["error"]["param"]) == (400, "prompt")


def test_keys_deadlines_and_ids_hold_through_ray_under_a_route_prefix_too(served: ServeProcess):
    def ask(path: str, **headers: str) -> httpx.Response:
        return httpx.get(f"{served.base_url}/small{path}", headers=headers)

    assert (ask("/livez").status_code, ask("/v1/models").status_code) == (200, 401)
    assert "engines" not in ask("/readyz").json()
    assert (ask("/v1/models", **BEARER).status_code, ask("/x", **BEARER).status_code) == (200, 403)

    body = {"model": "fake", "prompt": "x", "max_tokens": 400}
    for stream, status in ((False, 408), (True, 200)):
        headers = {**BEARER, "x-request-timeout-ms": "500", "x-request-id": "mine"}
        answer = httpx.post(
            f"{served.base_url}/small/v1/completions",
            json={**body, "stream": stream},
            headers=headers,
            timeout=60,
        )
        assert answer.status_code == status
        assert answer.headers.get_list("x-request-id") == ["mine"]
        assert "request_timeout" in answer.text
        assert eventually(lambda: num_running(served, "/small") == 0)
    assert KEY not in served.log


def test_a_client_that_leaves_frees_its_request(served: ServeProcess):
    body = {"model": "fake", "prompt": "x", "max_tokens": 500, "stream": True}
    # Left alone, it would run for two and a half minutes.
    url = f"{served.base_url}/small/v1/completions"
    with httpx.stream("POST", url, json=body, headers=BEARER) as answer:
        # Kept, because httpx closes a response whose iterator is dropped.
        lines = answer.iter_lines()
        next(lines)
        assert eventually(lambda: num_running(served, "/small") == 1)

    assert eventually(lambda: num_running(served, "/small") == 0)


def test_overload_is_answered_at_once_with_429_and_the_rest_is_served(served: ServeProcess):
    # One answer takes six seconds: none ends before the last request has come.
    async def post(client: httpx.AsyncClient) -> httpx.Response:
        body = {"model": "fake", "prompt": "x", "max_tokens": 20}
        return await client.post("/small/v1/completions", json=body, headers=BEARER)

    async def storm() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=served.base_url, timeout=60, limits=limits) as client:
            return await asyncio.gather(*(post(client) for _ in range(50)))

    answers = asyncio.run(storm())

    refused = [answer for answer in answers if answer.status_code != 200]
    # Four run and eight wait.
    assert len(answers) - len(refused) == 12
    assert {answer.status_code for answer in refused} == {429}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert {answer.json()["error"]["code"] for answer in refused} == {"queue_full"}


def with_user_config(user_config: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(CONFIG)
    changed["applications"][0]["deployments"][1]["user_config"] = user_config
    return changed


def test_limits_change_without_a_restart_and_a_wrong_change_is_reported(
    served: ServeProcess, client: openai.OpenAI
):
    def pids() -> set[int]:
        return {engine["pid"] for engine in engines(served)}

    assert eventually(lambda: len(pids()) == 2)
    before = pids()
    asked = {"model": "fake", "prompt": "xx", "max_tokens": 400, "seed": 5}
    with client.completions.create(**asked, stream=True) as stream:
        chunks = [next(stream)]
        served.deploy(with_user_config({"limits": {"max_num_seqs": 9}}))
        assert eventually(lambda: limits_of(served) == [9, 9])
        chunks += list(stream)
    text = "".join(chunk.choices[0].text for chunk in chunks)
    assert text[:400] in expected_text(0, 800, 5)
    assert len(text) == 400

    served.deploy(with_user_config({"limits": {"max_num_seq": 7}}))
    assert eventually(lambda: all(each["user_config_problem"] for each in engines(served)))
    for engine in engines(served):
        assert "Did you mean max_num_seqs?" in engine["user_config_problem"]
    assert limits_of(served) == [9, 9]
    assert pids() == before


def test_a_stream_goes_on_where_its_replica_was_killed(served: ServeProcess):
    """Last in the file: the application has one replica less for a while after it."""
    body = {
        "model": "fake",
        "prompt": "x" * 4,
        "max_tokens": 500,
        "seed": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
    }

    async def read(client: httpx.AsyncClient) -> str:
        async with client.stream("POST", "/v1/completions", json=body) as answer:
            return (await answer.aread()).decode()

    async def busiest(client: httpx.AsyncClient) -> dict[str, Any]:
        # What a replica runs is known from its last check-in.
        while True:
            found = (await client.get("/readyz")).json()["engines"]
            busy = max(found, key=lambda engine: engine["num_running"])
            if busy["num_running"]:
                return busy
            await asyncio.sleep(0.05)

    async def test() -> list[str]:
        async with httpx.AsyncClient(base_url=served.base_url, timeout=90) as client:
            streams = [asyncio.create_task(read(client)) for _ in range(6)]
            busy = await busiest(client)
            os.kill(busy["pid"], signal.SIGKILL)
            return await asyncio.gather(*streams)

    texts = asyncio.run(test())

    for text in texts:
        assert "error" not in text
        assert text.count('"finish_reason":"length"') == 1
        assert '"completion_tokens":500' in text
    assert len({_text_of(text) for text in texts}) == 1


def _text_of(stream: str) -> str:
    events = [line[6:] for line in stream.splitlines() if line.startswith("data: {")]
    choices = [choice for event in events for choice in json.loads(event)["choices"]]
    return "".join(choice["text"] for choice in choices)

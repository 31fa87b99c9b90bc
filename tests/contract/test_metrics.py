"""`GET /metrics`: the list, the page and the text agree; values are what requests were."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from deployments.telemetry.catalogue import METRICS, Kind
from deployments.telemetry.page import metrics_page
from tests.rigs.http_server import FakeServer, eventually

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
CHAT = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 11}


def samples_of(http: httpx.Client) -> Iterator[Sample]:
    for family in text_string_to_metric_families(http.get("/metrics").text):
        yield from family.samples


def value(http: httpx.Client, name: str, **labels: str) -> float:
    return sum(
        sample.value
        for sample in samples_of(http)
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def test_the_page_is_what_the_list_says():
    assert PAGE.read_text(encoding="utf-8") == metrics_page()


def test_the_list_and_the_text_have_the_same_names_types_and_labels(http: httpx.Client):
    http.post("/v1/chat/completions", json=CHAT)
    families = {
        family.name: family for family in text_string_to_metric_families(http.get("/metrics").text)
    }

    listed = {metric.name.removesuffix("_total"): metric for metric in METRICS}

    assert families.keys() == listed.keys()
    for name, family in families.items():
        assert family.type == listed[name].kind
        assert family.documentation == listed[name].meaning
        for sample in family.samples:
            assert {*sample.labels} - {"le"} == {*listed[name].labels}, sample


def test_names_end_as_prometheus_wants_them():
    for metric in METRICS:
        assert metric.name.startswith("dflash_")
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        for unit in ("seconds", "bytes"):
            assert metric.name.endswith(f"_{unit}") == (metric.unit == unit), metric.name
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_a_request_is_counted_once_in_every_histogram_of_requests(
    server: FakeServer, http: httpx.Client
):
    server.loop.tokens_per_step = 4
    names = [
        "dflash_time_to_first_token_seconds",
        "dflash_request_time_per_output_token_seconds",
        "dflash_request_queue_time_seconds",
        "dflash_e2e_request_latency_seconds",
    ]
    before = [value(http, f"{name}_count") for name in names]

    http.post("/v1/chat/completions", json=CHAT)

    assert eventually(
        lambda: [value(http, f"{name}_count") for name in names] == [n + 1 for n in before]
    )


def test_buckets_of_a_token_begin_at_half_a_millisecond(http: httpx.Client):
    bounds = [
        float(sample.labels["le"])
        for sample in samples_of(http)
        if sample.name == "dflash_inter_token_latency_seconds_bucket"
    ]
    assert bounds[0] == 0.0005
    assert bounds == sorted(bounds)
    assert bounds[-1] == float("inf")


@pytest.mark.parametrize(
    ("path", "body", "labels"),
    [
        ("/v1/chat/completions", CHAT, ("/v1/chat/completions", "200", "")),
        (
            "/v1/chat/completions",
            {**CHAT, "temperature": -1},
            ("/v1/chat/completions", "400", "invalid_parameter"),
        ),
        (
            "/v1/completions",
            {"model": "x", "prompt": "y"},
            ("/v1/completions", "404", "model_not_found"),
        ),
        ("/made/up", {}, ("unknown", "404", "route_not_found")),
    ],
)
def test_answers_are_counted_by_route_status_and_code(
    http: httpx.Client, path: str, body: dict[str, object], labels: tuple[str, str, str]
):
    wanted = dict(zip(("route", "status", "code"), labels, strict=True))
    before = value(http, "dflash_http_requests_total", **wanted)

    http.post(path, json=body)

    assert eventually(lambda: value(http, "dflash_http_requests_total", **wanted) == before + 1)


def test_what_a_client_makes_up_becomes_no_label(http: httpx.Client):
    http.get("/madeup-7f3a")
    http.post("/v1/completions", json={"model": "madeup-7f3a", "prompt": "madeup-7f3a"})

    assert "madeup" not in http.get("/metrics").text


def test_the_engines_part_comes_with_the_check_ins(server: FakeServer, http: httpx.Client):
    server.loop.may_step.clear()
    replica = http.get("/readyz").json()["engines"][0]["replica"]
    with httpx.stream(
        "POST", f"{server.base_url}/v1/chat/completions", json={**CHAT, "stream": True}
    ):
        assert eventually(lambda: value(http, "dflash_num_requests_running", replica=replica) == 1)
    assert eventually(lambda: value(http, "dflash_num_requests_running", replica=replica) == 0)
    server.loop.may_step.set()

"""A request's trace over HTTP: spans, parents, events, attributes, and what is never in them."""

from collections.abc import Iterator

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import get_tracer_provider

from tests.rigs.http_server import FakeServer, eventually, serving
from tests.rigs.otlp_receiver import Received, ReceivedSpan, receiving

CHAT = {"model": "fake", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 9}
CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def received() -> Iterator[Received]:
    with receiving() as received:
        yield received


@pytest.fixture(scope="module")
def traced(received: Received) -> Iterator[FakeServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        patch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
        with serving() as server:
            yield server


@pytest.fixture(autouse=True)
def nothing_yet(received: Received, traced: FakeServer) -> None:
    traced.loop.tokens_per_step, traced.loop.step_s = 3, 0.0
    traced.loop.failure = None
    traced.loop.may_step.set()
    received.spans.clear()
    received.bodies.clear()


def ask(server: FakeServer, path: str = "/v1/chat/completions", **body: object) -> httpx.Response:
    headers = {"traceparent": str(body.pop("traceparent", ""))}
    return httpx.post(server.base_url + path, json={**CHAT, **body}, headers=headers, timeout=20)


def spans_of(received: Received, count: int) -> list[ReceivedSpan]:
    assert eventually(lambda: len(received.spans) == count), received.spans
    return sorted(received.spans, key=lambda span: span.start_ns)


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_is_one_span_with_its_engines_part_beneath_it(
    traced: FakeServer, received: Received, stream: bool
):
    ask(traced, stream=stream, seed=7, temperature=0.5)

    front, engine = spans_of(received, 2)
    assert (front.name, engine.name) == ("chat fake", "engine")
    assert (front.parent_id, engine.parent_id) == ("", front.span_id)
    assert front.trace_id == engine.trace_id
    assert front.start_ns <= engine.start_ns <= engine.end_ns <= front.end_ns
    said = front.attributes
    assert said["gen_ai.operation.name"] == "chat"
    assert said["gen_ai.provider.name"] == "dflash-serve"
    assert said["gen_ai.request.model"] == said["gen_ai.response.model"] == "fake"
    assert said["gen_ai.request.stream"] is stream
    assert (said["gen_ai.request.seed"], said["gen_ai.request.temperature"]) == (7, 0.5)
    assert said["gen_ai.response.finish_reasons"] == ["length"]
    assert (said["gen_ai.usage.input_tokens"] > 0, said["gen_ai.usage.output_tokens"]) == (True, 9)
    assert said["http.response.status_code"] == 200
    assert engine.attributes["gen_ai.response.id"] == said["gen_ai.response.id"]
    assert said["dflash.replicas"] == [engine.attributes["dflash.replica"]]
    for span in (front, engine):
        # Three steps of three tokens: the first ends the prompt, the others verify.
        assert span.attributes["dflash.spec.steps"] == 2
        assert span.attributes["dflash.spec.draft_tokens"] == 6
        assert span.attributes["dflash.spec.accepted_tokens"] == 4
        assert span.attributes["dflash.spec.acceptance_length"] == 3.0
        assert span.attributes["dflash.spec.mode.scripted.steps"] == 2
        assert span.attributes["gen_ai.response.time_to_first_chunk"] >= 0
        assert not span.is_error
    roles = [span.resource["dflash.role"] for span in (front, engine)]
    assert roles == ["ingress", "engine"]
    assert {span.resource["service.name"] for span in (front, engine)} == {"dflash-serve"}


def test_the_moments_of_a_request_are_events_in_their_order(traced: FakeServer, received: Received):
    ask(traced)

    for span in spans_of(received, 2):
        assert [name for name, _, _ in span.events] == ["queue end", "first token", "finish"]
        times = [span.start_ns, *(at for _, at, _ in span.events)]
        assert times == sorted(times)
        assert span.events[-1][2] == {"dflash.reason": "length"}


def test_a_change_of_plan_is_an_event(traced: FakeServer, received: Received):
    ask(traced, max_tokens=7)

    front, _ = spans_of(received, 2)
    changes = [said for name, _, said in front.events if name == "plan change"]
    # One token is left for the last step, and nothing is drafted for it.
    assert changes == [{"dflash.from": "scripted", "dflash.to": "plain"}]
    assert front.attributes["dflash.spec.plan_changes"] == 1
    assert front.attributes["dflash.spec.inactive.plan"] == 1


def test_a_clients_trace_goes_on_and_an_unsampled_one_stays_unseen(
    traced: FakeServer, received: Received
):
    ask(traced, traceparent=CLIENT[:-2] + "00")
    ask(traced, traceparent=CLIENT)

    front, engine = spans_of(received, 2)
    assert front.trace_id == engine.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert front.parent_id == "b7ad6b7169203331"


def test_each_choice_has_a_part_of_its_own(traced: FakeServer, received: Received):
    ask(traced, n=2)

    front, *parts = spans_of(received, 3)
    assert {part.parent_id for part in parts} == {front.span_id}
    assert front.attributes["gen_ai.request.choice.count"] == 2
    assert front.attributes["gen_ai.usage.output_tokens"] == 18


def test_a_refused_request_is_an_error_and_has_no_engines_part(
    traced: FakeServer, received: Received
):
    ask(traced, temperature=-1)

    (front,) = spans_of(received, 1)
    assert front.is_error
    assert front.attributes["error.type"] == "invalid_parameter"
    assert front.attributes["http.response.status_code"] == 400


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_fails_is_an_error_on_both_sides(
    traced: FakeServer, received: Received, stream: bool
):
    traced.loop.failure = "the device is gone"

    ask(traced, stream=stream)

    for span in spans_of(received, 2):
        assert span.is_error
        assert span.attributes["error.type"] == "engine_failure"


def test_a_client_that_leaves_ends_both_spans_as_aborted(traced: FakeServer, received: Received):
    body = {**CHAT, "stream": True, "max_tokens": 400}
    traced.loop.tokens_per_step, traced.loop.step_s = 1, 0.01
    with httpx.stream("POST", traced.base_url + "/v1/chat/completions", json=body) as answer:
        next(answer.iter_lines())

    for span in spans_of(received, 2):
        assert span.events[-1][2] == {"dflash.reason": "abort"}
        assert not span.is_error


def test_probes_and_pages_are_no_traces(traced: FakeServer, received: Received):
    for path in ("/livez", "/readyz", "/metrics", "/v1/models", "/nowhere"):
        httpx.get(traced.base_url + path)
    ask(traced)

    assert {span.name for span in spans_of(received, 2)} == {"chat fake", "engine"}


def test_metrics_are_sent_by_both_processes_under_the_names_of_the_list(
    traced: FakeServer, received: Received
):
    ask(traced)
    spans_of(received, 2)

    def count_of(name: str) -> int:
        return sum(point.count for _, point in received.metrics.get(name, []))

    assert eventually(lambda: count_of("dflash_time_to_first_token_seconds") > 0)
    assert eventually(lambda: count_of("gen_ai.server.time_to_first_token") > 0)
    assert eventually(lambda: "dflash_num_requests_running" in received.metrics)
    ((attributes, point),) = received.metrics["dflash_inter_token_latency_seconds"]
    assert attributes == {"model": "fake", "ingress": "front"}
    assert sum(point.bucket_counts) == point.count
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1


def test_no_word_of_a_prompt_or_an_answer_is_sent(traced: FakeServer, received: Received):
    traced.loop.say("answerword")
    marked = [{"role": "user", "content": "promptword"}]

    ask(traced, messages=marked, stop=["stopword"], user="userword")
    ask(traced, messages=[{"role": "promptword", "content": ""}])

    spans_of(received, 3)
    traced.loop.script = None
    sent = b"".join(received.bodies)
    assert b"chat fake" in sent
    for word in (b"promptword", b"answerword", b"stopword", b"userword"):
        assert word not in sent


def test_the_processes_own_provider_is_left_alone(traced: FakeServer):
    assert not isinstance(get_tracer_provider(), TracerProvider)
    assert traced.base_url

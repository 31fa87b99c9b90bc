"""Spans beside Ray's own tracing, samplers, collectors that are down, and decisions."""

import logging
import threading
import time
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import set_span_in_context

from deployments.request_journal import RequestJournal
from deployments.telemetry.decisions import DecisionTeller
from deployments.telemetry.tracing import Tracing, resource_of, trace_id_of
from policy.arms import PLAIN_ARM, Arm
from policy.decision import Decision, Plan
from policy.log import LogEntry, described
from policy.reasons import Reason
from policy.signals import Signals

ROUTE = "/v1/chat/completions"
CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exporter: InMemorySpanExporter) -> Tracing:
    return Tracing(SimpleSpanProcessor(exporter), "ingress", "front")


def ended(tracing: Tracing, carrier: str = "") -> None:
    span = tracing.begin_request(ROUTE, carrier, time.time())
    span.end(RequestJournal().record(ROUTE, 200))


@pytest.fixture
def rays(exporter: InMemorySpanExporter) -> Iterator[TracerProvider]:
    """Ray's provider, with its span of this request as the current one."""
    provider = TracerProvider()
    span = provider.get_tracer("ray").start_span("replica_handle_request")
    token = attach(set_span_in_context(span))
    provider.current_span = span  # type: ignore[attr-defined]
    yield provider
    detach(token)


def test_where_ray_traces_our_span_is_beneath_its_own(
    tracing: Tracing, exporter: InMemorySpanExporter, rays: TracerProvider
):
    ended(tracing)

    (span,) = exporter.get_finished_spans()
    theirs = rays.current_span.get_span_context()  # type: ignore[attr-defined]
    assert span.context.trace_id == theirs.trace_id
    assert span.parent is not None
    assert span.parent.span_id == theirs.span_id


@pytest.mark.usefixtures("rays")
def test_where_ray_lost_the_clients_trace_ours_does_not(
    tracing: Tracing, exporter: InMemorySpanExporter
):
    ended(tracing, CLIENT)

    (span,) = exporter.get_finished_spans()
    assert f"{span.context.trace_id:032x}" == trace_id_of(CLIENT)


def test_without_rays_tracing_a_request_begins_a_trace(
    tracing: Tracing, exporter: InMemorySpanExporter
):
    ended(tracing)

    (span,) = exporter.get_finished_spans()
    assert span.parent is None


@pytest.mark.parametrize("carrier", ["", "garbage", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_carrier_that_names_no_trace_is_none(
    carrier: str, tracing: Tracing, exporter: InMemorySpanExporter
):
    assert trace_id_of(carrier) == ""

    ended(tracing, carrier)

    assert exporter.get_finished_spans()[0].parent is None


def test_the_samplers_variables_hold(
    monkeypatch: pytest.MonkeyPatch, exporter: InMemorySpanExporter
):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")

    tracing = Tracing(SimpleSpanProcessor(exporter), "ingress", "front")
    span = tracing.begin_request(ROUTE, "", time.time())

    assert not span.is_recording
    assert int(span.carrier[-2:], 16) & 1 == 0
    span.end(RequestJournal().record(ROUTE, 200))
    assert exporter.get_finished_spans() == ()


def test_the_environment_names_the_service(monkeypatch: pytest.MonkeyPatch):
    assert resource_of("engine", "r1").attributes["service.name"] == "dflash-serve"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    attributes = resource_of("engine", "r1").attributes
    assert attributes["service.name"] == "mine"
    assert (attributes["service.instance.id"], attributes["dflash.role"]) == ("r1", "engine")


class Stuck(SpanExporter):
    """A collector that answers when it is let go."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.num_received = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.may_answer.wait()
        self.num_received += len(spans)
        return SpanExportResult.SUCCESS


def test_a_collector_that_hangs_holds_nobody_up():
    collector = Stuck()
    processor = BatchSpanProcessor(collector, max_queue_size=64, max_export_batch_size=64)
    tracing = Tracing(processor, "ingress", "front")

    for _ in range(1000):
        ended(tracing)
    collector.may_answer.set()
    tracing.stop()

    # What its queue could not hold is lost.
    assert 64 <= collector.num_received < 1000


def entry(reason: Reason, arm_from: Arm, arm_to: Arm, at_s: float) -> LogEntry:
    last = Decision(at_s, Plan(arm_from))
    return described(last, Decision(at_s, Plan(arm_to), reason), Signals(now_s=at_s))


class Noted:
    """Decisions that were noted, with a clock that began an hour after the epoch."""

    clock_offset_s = 3600.0

    def __init__(self, *entries: LogEntry) -> None:
        self.entries = list(enumerate(entries, start=1))

    def changes_after(self, number: int) -> tuple[tuple[int, LogEntry], ...]:
        return tuple(each for each in self.entries if each[0] > number)


def test_each_decision_is_told_once_as_a_line_a_span_and_a_count(
    tracing: Tracing, exporter: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
):
    wide, narrow = Arm("dflash2", 7), Arm("dflash2", 3)
    noted = Noted(
        entry(Reason.FASTER, PLAIN_ARM, wide, 1.0), entry(Reason.NARROWER, wide, narrow, 2.0)
    )
    teller = DecisionTeller("r1", tracing)

    with caplog.at_level(logging.INFO, "deployments"):
        teller.tell(noted)
        teller.tell(noted)
        noted.entries.append((3, entry(Reason.NARROWER, wide, narrow, 5.0)))
        teller.tell(noted)

    assert dict(teller.counts()) == {
        ("plain", "dflash2", "faster"): 1,
        ("dflash2", "dflash2", "narrower"): 2,
    }
    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == ["policy decision"] * 3
    assert [span.start_time for span in spans] == [3601 * 10**9, 3602 * 10**9, 3605 * 10**9]
    assert all(span.parent is None for span in spans)
    said = spans[0].attributes or {}
    assert said["dflash.policy.from"] == "plain"
    assert said["dflash.policy.to"] == "dflash2:7"
    assert said["dflash.policy.reason"] == "faster"
    assert said["dflash.replica"] == "r1"
    lines = [record.__dict__["decision"] for record in caplog.records]
    assert [line["reason"] for line in lines] == ["faster", "narrower", "narrower"]

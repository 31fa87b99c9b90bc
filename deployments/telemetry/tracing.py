"""Spans of requests and of decisions, sent by OTLP; nothing of ours reads or sets global state.

Ray has tracing of its own, which sets the process's tracer provider, or does not. Ours is another
one, and its context crosses the handle as an argument, so both work with and without the other.
"""

import os
from collections.abc import Mapping
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from deployments.request_record import RequestRecord
from deployments.telemetry.span_form import OPERATIONS, Attribute, attributes_of, events_of

CARRIER: Final = "traceparent"
_NS_PER_S = 1_000_000_000
_FLUSH_MS = 2000

_propagator = TraceContextTextMapPropagator()


class RequestSpan:
    """The span of one request in one process.

    Attributes:
        carrier: What its children elsewhere are told, as W3C has it.
        trace_id: 32 hex digits.
    """

    def __init__(self, span: Span) -> None:
        """Take a span that has begun."""
        self._span = span
        self.trace_id = format_trace_id(span.get_span_context().trace_id)
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, set_span_in_context(span, Context()))
        self.carrier = carrier.get(CARRIER, "")

    @property
    def is_recording(self) -> bool:
        """Whether anybody will see it."""
        return self._span.is_recording()

    def end(self, record: RequestRecord) -> None:
        """Enter what became of the request, and end with it."""
        span = self._span
        if not span.is_recording():
            return
        operation = OPERATIONS.get(record.route)
        if operation is not None:
            span.set_attribute("gen_ai.operation.name", operation)
            if record.asked is not None:
                span.update_name(f"{operation} {record.asked.model}")
        span.set_attributes(attributes_of(record))
        for event in events_of(record):
            span.add_event(event.name, event.attributes, _ns(event.at_s))
        if record.error_code is not None:
            # A description could hold what its client wrote.
            span.set_status(Status(StatusCode.ERROR))
        span.end(_ns(record.arrived_at_s + record.duration_s))


class Tracing:
    """Makes spans, and hands them to a processor when they end."""

    def __init__(self, processor: SpanProcessor, role: str, instance: str) -> None:
        """Make a provider that only we use; the standard variables choose its sampler.

        Args:
            processor: Sends the spans; never holds up whoever ends one.
            role: ``ingress`` or ``engine``.
            instance: Name of this process among all of them.
        """
        self._provider = TracerProvider(resource=resource_of(role, instance))
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("deployments.telemetry")

    def begin_request(self, route: str, carrier: str, arrived_at_s: float) -> RequestSpan:
        """Begin the span of a request that reached the ingress.

        Args:
            route: Its path.
            carrier: The ``traceparent`` that its client sent, or nothing.
            arrived_at_s: When, since the epoch, seconds.
        """
        parent = _ingress_parent(carrier)
        start = _ns(arrived_at_s)
        return RequestSpan(
            self._tracer.start_span(route, parent, SpanKind.SERVER, start_time=start)
        )

    def begin_engine(self, request_id: str, replica: str, carrier: str) -> RequestSpan:
        """Begin an engine's part of a request.

        Args:
            request_id: Which choice of which request.
            replica: Whose part.
            carrier: Names the ingress's span, which is its parent.
        """
        parent = _propagator.extract({CARRIER: carrier}, Context())
        who = {"gen_ai.response.id": request_id, "dflash.replica": replica}
        return RequestSpan(self._tracer.start_span("engine", parent, attributes=who))

    def note(self, name: str, attributes: Mapping[str, Attribute], at_s: float) -> None:
        """Enter something that belongs to no request, as a trace of its own.

        Args:
            name: What it is.
            attributes: More of it.
            at_s: When, since the epoch, seconds.
        """
        span = self._tracer.start_span(name, Context(), attributes=attributes, start_time=_ns(at_s))
        span.end(_ns(at_s))

    def stop(self) -> None:
        """Send what is left, within a bounded time, and end."""
        self._provider.force_flush(_FLUSH_MS)
        self._provider.shutdown()


def resource_of(role: str, instance: str) -> Resource:
    """Return who sends; the environment may give the service another name.

    Args:
        role: ``ingress`` or ``engine``.
        instance: Name of this process among all of them.
    """
    ours = {"service.instance.id": instance, "dflash.role": role}
    if str(Resource.create().attributes["service.name"]).startswith("unknown_service"):
        ours["service.name"] = "dflash-serve"
    return Resource.create(ours)


def trace_id_of(carrier: str) -> str:
    """Return the trace that a ``traceparent`` names, 32 hex digits; nothing where it names none."""
    context = get_current_span(_propagator.extract({CARRIER: carrier}, Context()))
    found = context.get_span_context()
    return format_trace_id(found.trace_id) if found.is_valid else ""


def otlp_processor() -> SpanProcessor:
    """Return what sends spans in batches, from a thread of its own, to where the variables say."""
    # Costs a tenth of a second to import, which nobody pays who does not send.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # A replica that is killed loses what was not sent, and five seconds are the usual delay.
    delay_ms = None if os.environ.get("OTEL_BSP_SCHEDULE_DELAY") else 1000
    return BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=delay_ms)


def _ingress_parent(carrier: str) -> Context:
    """Return what a request's span belongs to: its client's trace, as deep in it as is known.

    Where Ray traces too, its span of this request is around us. It is the better parent, unless
    it knows nothing of the client's trace.
    """
    sent = _propagator.extract({CARRIER: carrier}, Context())
    theirs = get_current_span(sent).get_span_context()
    around = get_current_span()
    is_of_theirs = around.get_span_context().trace_id == theirs.trace_id
    if around.get_span_context().is_valid and (is_of_theirs or not theirs.is_valid):
        return set_span_in_context(around, Context())
    return sent


def _ns(seconds: float) -> int:
    return int(seconds * _NS_PER_S)

"""A collector of OTLP over HTTP: keeps what it is sent, for a test to read."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class ReceivedSpan:
    """One span."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: list[tuple[str, int, dict[str, Any]]]
    resource: dict[str, Any]
    is_error: bool


@dataclass
class Received:
    """All that came so far.

    Attributes:
        endpoint: Where to send.
        spans: In the order of their ends.
        metrics: The newest points of each name: their attributes and the point itself.
        bodies: As they came, to be searched.
    """

    endpoint: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    metrics: dict[str, list[tuple[dict[str, Any], Any]]] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]


@contextmanager
def receiving() -> Iterator[Received]:
    """Receive until the block ends."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            received.bodies.append(body)
            if self.path.endswith("/v1/traces"):
                received.spans += _spans(ExportTraceServiceRequest.FromString(body))
            else:
                received.metrics.update(_metrics(ExportMetricsServiceRequest.FromString(body)))
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _spans(request: ExportTraceServiceRequest) -> Iterator[ReceivedSpan]:
    for of_resource in request.resource_spans:
        resource = _attributes(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield ReceivedSpan(
                    name=span.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    start_ns=span.start_time_unix_nano,
                    end_ns=span.end_time_unix_nano,
                    attributes=_attributes(span.attributes),
                    events=[
                        (event.name, event.time_unix_nano, _attributes(event.attributes))
                        for event in span.events
                    ],
                    resource=resource,
                    is_error=span.status.code == span.status.STATUS_CODE_ERROR,
                )


def _metrics(
    request: ExportMetricsServiceRequest,
) -> dict[str, list[tuple[dict[str, Any], Any]]]:
    found: dict[str, list[tuple[dict[str, Any], Any]]] = {}
    for of_resource in request.resource_metrics:
        for of_scope in of_resource.scope_metrics:
            for metric in of_scope.metrics:
                data = getattr(metric, metric.WhichOneof("data") or "")
                found[metric.name] = [(_attributes(p.attributes), p) for p in data.data_points]
    return found


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)

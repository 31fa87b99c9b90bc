"""Everything an ingress tells of its requests: a span, a line, and counts of each."""

import asyncio

from deployments.request_journal import RequestJournal
from deployments.request_record import RequestRecord
from deployments.telemetry.lines import log_request
from deployments.telemetry.otlp_metrics import MetricSender
from deployments.telemetry.request_counts import RequestCounts
from deployments.telemetry.samples import Samples
from deployments.telemetry.span_form import OPERATIONS
from deployments.telemetry.tracing import RequestSpan, Tracing, trace_id_of


class IngressTelemetry:
    """Told of each request as it begins and ends. Used on the event loop only."""

    def __init__(
        self,
        counts: RequestCounts,
        tracing: Tracing | None = None,
        sender: MetricSender | None = None,
    ) -> None:
        """Begin with no request.

        Args:
            counts: Adds the requests up.
            tracing: Makes spans; None where nobody asks for them.
            sender: Sends metrics; None where nobody asks for them.
        """
        self._counts = counts
        self._tracing = tracing
        self._sender = sender

    def begin(self, path: str, carrier: str, journal: RequestJournal) -> RequestSpan | None:
        """Begin a request's span; None where it has none.

        Probes and pages have none: a collector would hold little else.

        Args:
            path: Which it asked for.
            carrier: The ``traceparent`` that its client sent, or nothing.
            journal: Learns of its trace.
        """
        if self._tracing is None or path not in OPERATIONS:
            journal.trace_id = trace_id_of(carrier)
            return None
        span = self._tracing.begin_request(path, carrier, journal.arrived_at_s)
        journal.trace_id, journal.carrier = span.trace_id, span.carrier
        return span

    def end(self, record: RequestRecord, span: RequestSpan | None) -> None:
        """Tell of a request that is over."""
        self._counts.note(record)
        log_request(record)
        if span is not None:
            span.end(record)

    def samples(self) -> Samples:
        """Return the ingress's own metrics."""
        return self._counts.samples()

    async def run(self) -> None:
        """Send metrics, where somebody asks for them, until cancelled; then all that is left."""
        try:
            await (asyncio.Event().wait() if self._sender is None else self._sender.run())
        finally:
            if self._tracing is not None:
                self._tracing.stop()

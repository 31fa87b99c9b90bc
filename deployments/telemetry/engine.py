"""What an engine replica tells of single requests: its part of their traces."""

import asyncio

from deployments.request_journal import RequestJournal
from deployments.telemetry.decisions import Change, Decisions, DecisionTeller
from deployments.telemetry.otlp_metrics import MetricSender
from deployments.telemetry.tracing import RequestSpan, Tracing
from deployments.wire import Step
from dflash.request import FinishReason


class EnginePart:
    """The part of one traced request that a replica computes. Used on the event loop only."""

    def __init__(self, span: RequestSpan) -> None:
        """Begin with the span's begin."""
        self._span = span
        self._journal = RequestJournal()
        self._is_over = False

    def note(self, step: Step) -> None:
        """Enter one message, when it leaves."""
        self._journal.note(step)
        self._is_over = step.is_last
        if step.error is not None:
            self._journal.fail(step.error)
        elif step.finish_reason is not None:
            self._journal.finish(step.finish_reason)

    def end(self) -> None:
        """Enter that nothing more leaves."""
        if not self._is_over:
            self._journal.finish(FinishReason.ABORT.value)
        self._span.end(self._journal.record())


class _UntracedPart(EnginePart):
    """Stands where nobody traces a request."""

    def __init__(self) -> None:
        """Keep nothing."""

    def note(self, step: Step) -> None:
        """Enter nothing."""

    def end(self) -> None:
        """End nothing."""


class EngineTelemetry:
    """What a replica tells of requests, of decisions and of its engine."""

    def __init__(
        self, replica: str, tracing: Tracing | None = None, sender: MetricSender | None = None
    ) -> None:
        """Begin with no request.

        Args:
            replica: Name of this replica.
            tracing: Makes spans; None where nobody asks for them.
            sender: Sends metrics; None where nobody asks for them.
        """
        self._replica = replica
        self._tracing = tracing
        self._teller = DecisionTeller(replica, tracing)
        self._sender = sender
        self._sending: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to send metrics, from the running event loop."""
        if self._sender is not None:
            self._sending = asyncio.create_task(self._sender.run())

    @property
    def decisions(self) -> tuple[tuple[Change, int], ...]:
        """How many decisions there were of each kind."""
        return self._teller.counts()

    def tell_decisions(self, decisions: Decisions) -> None:
        """Tell of those decisions that are new."""
        self._teller.tell(decisions)

    def begin(self, request_id: str, carrier: str) -> EnginePart:
        """Return a request's part.

        Args:
            request_id: Which.
            carrier: Names the ingress's span; nothing where there is none.
        """
        if self._tracing is None or not carrier:
            return _UNTRACED
        span = self._tracing.begin_engine(request_id, self._replica, carrier)
        return EnginePart(span) if span.is_recording else _UNTRACED

    def stop(self) -> None:
        """Send what is left."""
        if self._sending is not None:
            self._sending.cancel()
        if self._tracing is not None:
            self._tracing.stop()


_UNTRACED = _UntracedPart()

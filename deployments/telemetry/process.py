"""What one process sends, as OpenTelemetry's variables in its environment ask for."""

import os
from collections.abc import Callable

from deployments.telemetry.engine import EngineTelemetry
from deployments.telemetry.engine_samples import engine_samples
from deployments.telemetry.environment import exports_from
from deployments.telemetry.ingress import IngressTelemetry
from deployments.telemetry.otlp_metrics import MetricSender, otlp_sender
from deployments.telemetry.request_counts import RequestCounts
from deployments.telemetry.samples import Samples
from deployments.telemetry.tracing import Tracing, otlp_processor, resource_of
from deployments.wire import EngineStatus


def ingress_telemetry(model: str, ingress: str) -> IngressTelemetry:
    """Return what an ingress tells.

    Args:
        model: The name that clients ask for.
        ingress: Name of this ingress replica.
    """
    counts = RequestCounts(model, ingress)
    sender = _sender(counts.samples, "ingress", ingress)
    return IngressTelemetry(counts, _tracing("ingress", ingress), sender)


def engine_telemetry(
    model: str, replica: str, status: Callable[[], EngineStatus]
) -> EngineTelemetry:
    """Return what an engine replica tells.

    Args:
        model: The name that clients ask for.
        replica: Name of this engine replica.
        status: Returns what it says at a check-in.
    """

    def samples() -> Samples:
        return engine_samples(model, [status()])

    tracing, sender = _tracing("engine", replica), _sender(samples, "engine", replica)
    return EngineTelemetry(replica, tracing, sender)


def _tracing(role: str, instance: str) -> Tracing | None:
    if not exports_from(os.environ).traces:
        return None
    return Tracing(otlp_processor(), role, instance)


def _sender(samples: Callable[[], Samples], role: str, instance: str) -> MetricSender | None:
    if not exports_from(os.environ).metrics:
        return None
    return otlp_sender(samples, resource_of(role, instance), os.environ)

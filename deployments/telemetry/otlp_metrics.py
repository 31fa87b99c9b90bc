"""Samples as OpenTelemetry's metrics, sent by OTLP at an interval.

The numbers are kept once, by us: to count each token a second time in the SDK's instruments would
cost more than to write one, and could disagree with what `/metrics` says.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as SentMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from deployments.telemetry.catalogue import Kind, Metric
from deployments.telemetry.samples import Labels, Samples, Value
from dflash.durations import BucketCounts

_DEFAULT_INTERVAL_MS = 60_000.0
_LAST_TIMEOUT_MS = 2000.0
_CUMULATIVE = AggregationTemporality.CUMULATIVE
# The conventions' units; a count of things has the things in braces.
_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1", "0 or 1": "1"}

logger = logging.getLogger(__name__)


class MetricSender:
    """Sends what a process counts."""

    def __init__(
        self,
        samples: Callable[[], Samples],
        exporter: MetricExporter,
        resource: Resource,
        interval_s: float,
    ) -> None:
        """Prepare to send.

        Args:
            samples: Returns what there is now; called on the event loop.
            exporter: Sends; called in a thread.
            resource: Who sends.
            interval_s: Between two times, seconds.
        """
        self._samples, self._exporter = samples, exporter
        self._resource, self._interval_s = resource, interval_s
        self._started_ns = time.time_ns()
        self._is_received = True

    async def run(self) -> None:
        """Send until cancelled, and once more then."""
        try:
            while True:
                await asyncio.sleep(self._interval_s)
                self._note(await asyncio.to_thread(self._exporter.export, self._data()))
        finally:
            self._exporter.export(self._data(), _LAST_TIMEOUT_MS)
            self._exporter.shutdown()

    def _note(self, result: MetricExportResult) -> None:
        """Say once that nobody receives, and once that somebody does again."""
        is_received = result is MetricExportResult.SUCCESS
        if is_received != self._is_received:
            logger.warning("metrics are %s", "received again" if is_received else "not received")
        self._is_received = is_received

    def _data(self) -> MetricsData:
        return metrics_data(self._samples(), self._resource, self._started_ns)


def otlp_sender(
    samples: Callable[[], Samples], resource: Resource, environment: Mapping[str, str]
) -> MetricSender:
    """Return what sends to where the standard variables say.

    Args:
        samples: As `MetricSender` has it.
        resource: Who sends.
        environment: Has the interval, where it is not a minute.
    """
    # As with spans: only those who send pay for the import.
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    interval_ms = float(environment.get("OTEL_METRIC_EXPORT_INTERVAL") or _DEFAULT_INTERVAL_MS)
    return MetricSender(samples, OTLPMetricExporter(), resource, interval_ms / 1000)


def metrics_data(samples: Samples, resource: Resource, started_ns: int) -> MetricsData:
    """Return samples as the SDK's values.

    Args:
        samples: What there is.
        resource: Who sends.
        started_ns: When counting began, since the epoch, nanoseconds.
    """
    now_ns = time.time_ns()
    metrics = [
        SentMetric(name, metric.meaning, _unit(metric), _points(metric, values, started_ns, now_ns))
        for metric, values in samples.items()
        for name in (metric.name, metric.genai_name)
        if name is not None and values
    ]
    scope = ScopeMetrics(InstrumentationScope("deployments.telemetry"), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _unit(metric: Metric) -> str:
    return _UNITS.get(metric.unit) or "{" + metric.unit + "}"


def _points(
    metric: Metric, values: Mapping[Labels, Value], started_ns: int, now_ns: int
) -> Sum | Gauge | Histogram:
    if metric.kind is Kind.HISTOGRAM:
        buckets = [
            HistogramDataPoint(
                attributes=dict(zip(metric.labels, labels, strict=True)),
                start_time_unix_nano=started_ns,
                time_unix_nano=now_ns,
                count=value.count,
                sum=value.total,
                bucket_counts=value.counts or (0,) * (len(metric.bounds) + 1),
                explicit_bounds=metric.bounds,
                # Optional in the protocol, and of no use where counts only grow.
                min=None,  # pyright: ignore[reportArgumentType]
                max=None,  # pyright: ignore[reportArgumentType]
            )
            for labels, value in values.items()
            if isinstance(value, BucketCounts)
        ]
        return Histogram(buckets, _CUMULATIVE)
    numbers = list(_numbers(metric, values, started_ns, now_ns))
    return Sum(numbers, _CUMULATIVE, True) if metric.kind is Kind.COUNTER else Gauge(numbers)


def _numbers(
    metric: Metric, values: Mapping[Labels, Value], started_ns: int, now_ns: int
) -> Iterator[NumberDataPoint]:
    for labels, value in values.items():
        if not isinstance(value, BucketCounts):
            attributes = dict(zip(metric.labels, labels, strict=True))
            yield NumberDataPoint(attributes, started_ns, now_ns, value)

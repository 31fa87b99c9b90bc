"""Samples as the text that Prometheus scrapes."""

from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from deployments.telemetry.catalogue import METRICS, Kind, Metric
from deployments.telemetry.samples import Labels, Samples, Value
from dflash.durations import BucketCounts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def prometheus_text(samples: Samples) -> bytes:
    """Return all metrics there are, those without a value as their name alone."""
    return generate_latest(_Families(samples))  # pyright: ignore[reportArgumentType]


class _Families(Collector):
    """Stands where the library has a registry; Ray uses the library's own one."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            yield _family(metric, self._samples.get(metric, {}))


def _family(metric: Metric, values: Mapping[Labels, Value]) -> Family:
    if metric.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        for labels, value in values.items():
            if isinstance(value, BucketCounts):
                histogram.add_metric(labels, _buckets(metric, value), value.total)
        return histogram
    of_kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = of_kind(metric.name, metric.meaning, labels=metric.labels)
    for labels, value in values.items():
        if not isinstance(value, BucketCounts):
            family.add_metric(labels, value)
    return family


def _buckets(metric: Metric, counts: BucketCounts) -> list[tuple[str, float]]:
    ends = (*map(floatToGoString, metric.bounds), "+Inf")
    filled = counts.counts or (0,) * len(ends)
    return list(zip(ends, map(float, accumulate(filled)), strict=True))

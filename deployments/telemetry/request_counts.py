"""The ingress's own metrics: every request that is over, added up."""

from collections import Counter

from deployments.request_record import RequestRecord
from deployments.telemetry.catalogue import (
    E2E_LATENCY,
    HTTP_REQUESTS,
    INGRESS_METRICS,
    INTER_TOKEN_LATENCY,
    QUEUE_TIME,
    TIME_PER_OUTPUT_TOKEN,
    TIME_TO_FIRST_TOKEN,
    Kind,
    Metric,
)
from deployments.telemetry.samples import Labels, Samples, Value
from dflash.durations import Histogram


class RequestCounts:
    """Adds up the requests of one ingress. Used on its event loop only."""

    def __init__(self, model: str, ingress: str) -> None:
        """Begin at nothing.

        Args:
            model: The name that clients ask for.
            ingress: Name of this ingress replica.
        """
        self._origin = (model, ingress)
        self._histograms = {
            metric: Histogram(metric.bounds)
            for metric in INGRESS_METRICS
            if metric.kind is Kind.HISTOGRAM
        }
        self._requests: Counter[Labels] = Counter()

    def note(self, record: RequestRecord) -> None:
        """Count a request that is over."""
        self._requests[record.route, str(record.status), record.error_code or ""] += 1
        if record.asked is None or not record.replicas:
            return
        self._observe(TIME_TO_FIRST_TOKEN, record.first_token_s)
        self._observe(TIME_PER_OUTPUT_TOKEN, record.time_per_output_token_s)
        self._observe(QUEUE_TIME, record.queue_time_s)
        self._observe(E2E_LATENCY, record.duration_s)
        self._histograms[INTER_TOKEN_LATENCY].add(record.gaps)

    def samples(self) -> Samples:
        """Return what was counted so far."""
        requests: dict[Labels, Value] = {
            (*self._origin, *labels): float(count) for labels, count in self._requests.items()
        }
        histograms = {
            metric: {self._origin: histogram.counts()}
            for metric, histogram in self._histograms.items()
        }
        return {**histograms, HTTP_REQUESTS: requests}

    def _observe(self, metric: Metric, value_s: float | None) -> None:
        if value_s is not None:
            self._histograms[metric].observe(value_s)

"""Values of metrics at one moment, whatever they are then written as."""

from collections.abc import Mapping

from deployments.telemetry.catalogue import Metric
from dflash.durations import BucketCounts

Value = float | BucketCounts
Labels = tuple[str, ...]
Samples = Mapping[Metric, Mapping[Labels, Value]]
"""Values by metric and by its labels' values, in the order of `Metric.labels`."""


def joined(*parts: Samples) -> Samples:
    """Return the samples of all parts, whose labels differ."""
    together: dict[Metric, dict[Labels, Value]] = {}
    for part in parts:
        for metric, values in part.items():
            together.setdefault(metric, {}).update(values)
    return together

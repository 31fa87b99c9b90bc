"""Durations counted in buckets: bounded memory, and sums that add up over processes."""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

# A speculating GPU emits a token in well under the 10 ms at which the usual buckets begin.
TOKEN_BOUNDS_S: Final = (
    *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0),
)
"""Upper ends for what happens once a token or a step, seconds."""


@dataclass(frozen=True, slots=True)
class BucketCounts:
    """What a histogram holds at one moment.

    Attributes:
        counts: Values in each bucket, the last one for those above all bounds; not cumulative.
            None before the first.
        total: Sum of the values.
    """

    counts: tuple[int, ...] = ()
    total: float = 0.0

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts)

    def plus(self, value: float, bounds: tuple[float, ...]) -> "BucketCounts":
        """Return these counts with one value more."""
        counts = list(self.counts or (0,) * (len(bounds) + 1))
        counts[bisect_left(bounds, value)] += 1
        return BucketCounts(tuple(counts), self.total + value)


class Histogram:
    """Values counted by size."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Start empty.

        Args:
            bounds: Upper ends of the buckets, ascending; a value at an end belongs to it.
        """
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self._total += value

    def add(self, counts: BucketCounts) -> None:
        """Count all values of another histogram with the same bounds."""
        for index, count in enumerate(counts.counts):
            self._counts[index] += count
        self._total += counts.total

    def counts(self) -> BucketCounts:
        """Return what it holds now."""
        return BucketCounts(tuple(self._counts), self._total)

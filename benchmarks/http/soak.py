"""Whether the replica's memory grows with the requests it has served."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.http.client import ChatClient
from benchmarks.http.processes import ClusterProcesses
from benchmarks.prompts import questions
from benchmarks.report import progress

_CONCURRENCY = 32
_NEW_TOKENS = 8
_NUM_PARTS = 20
# Pools, caches and the page table reach their size in the first part of a run.
_WARM_UP_FRACTION = 0.25
_MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True)
class Soak:
    """Memory of the replica along a run of short requests.

    Attributes:
        num_requests: Served when each reading was taken.
        replica_gib: The readings.
    """

    num_requests: tuple[int, ...]
    replica_gib: tuple[float, ...]

    @property
    def growth_mib_per_1000(self) -> float:
        """Slope of the readings after the warm-up, by least squares, MiB per 1,000 requests."""
        first = int(len(self.num_requests) * _WARM_UP_FRACTION)
        thousands = [count / 1000 for count in self.num_requests[first:]]
        mib = [gib * _MIB_PER_GIB for gib in self.replica_gib[first:]]
        return slope(thousands, mib)


def soak(client: ChatClient, processes: ClusterProcesses, num_requests: int) -> Soak:
    """Serve short requests, reading the replica's memory in between."""
    part = max(1, num_requests // _NUM_PARTS)
    counts: list[int] = []
    readings: list[float] = []
    with progress(num_requests, "soak") as bar:
        for index in range(_NUM_PARTS):
            client.visit(questions(part, 900 + index), _CONCURRENCY, _NEW_TOKENS)
            counts.append((index + 1) * part)
            readings.append(processes.footprint().replica_gib)
            bar.update(part)
    return Soak(num_requests=tuple(counts), replica_gib=tuple(readings))


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the slope of the straight line through the points by least squares."""
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread

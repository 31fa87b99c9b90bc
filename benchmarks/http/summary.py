"""Rounds of both modes turned into figures and tables."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from benchmarks.http.edge import TOKENS_A_MESSAGE, Edge
from benchmarks.http.processes import Footprint
from benchmarks.http.rounds import Comparison, percentile
from benchmarks.http.server import FAST, Mode
from benchmarks.http.soak import Soak
from benchmarks.peers.runners.protocol import Description
from benchmarks.peers.samples import Load
from benchmarks.report import Result, Table

# Interactive use: several readers at once, none of whom waits for a place in the batch.
_TTFT_CONCURRENCY = 8
_MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class ModeResult:
    """One mode of Ray Serve.

    Attributes:
        comparisons: Every load of every round.
        footprint: Memory after the rounds.
        soak: Memory along the soak, where one ran.
    """

    comparisons: tuple[Comparison, ...]
    footprint: Footprint
    soak: Soak | None

    def of(self, concurrency: int) -> list[Comparison]:
        """Return the comparisons at one load, one a round."""
        return [c for c in self.comparisons if c.concurrency == concurrency]


def result_from_modes(
    loads: Sequence[Load], results: Mapping[Mode, ModeResult], engine: Description, edge: Edge
) -> Result:
    """Return what the run found.

    Args:
        loads: What each visit served.
        results: Of each mode; the fast one must be there.
        engine: What runs in process, which is also what the replica runs.
        edge: What was measured without an engine.
    """
    fast = results[FAST]
    ttft_s = [value for c in fast.of(_TTFT_CONCURRENCY) for value in c.ttft_s]
    figures = {
        f"rate_over_in_process{mode.suffix}_at_{load.concurrency}": statistics.median(
            c.rate_over_in_process for c in result.of(load.concurrency)
        )
        for mode, result in results.items()
        for load in loads
    }
    figures["ttft_p50_ms"] = percentile(ttft_s, 0.50) * _MS_PER_S
    figures["ttft_p99_ms"] = percentile(ttft_s, 0.99) * _MS_PER_S
    figures["resident_gib"] = fast.footprint.replica_gib
    figures["resident_all_processes_gib"] = fast.footprint.cluster_gib
    figures |= edge.figures
    if fast.soak is not None:
        figures["growth_mib_per_1000_requests"] = fast.soak.growth_mib_per_1000
    return Result(
        figures=figures,
        conditions={
            "dtype": engine.weights,
            "threads": engine.threads,
            "exactness": engine.settings,
        },
        detail={
            **{mode.name: asdict(result) for mode, result in results.items()},
            "edge": asdict(edge),
        },
        tables=tuple(_rate_table(mode, result, loads) for mode, result in results.items()),
        notes=(
            f"TTFT is at {_TTFT_CONCURRENCY} requests in flight, in fast mode, prompts not cached.",
            "Memory counts shared pages once (PSS).",
            "The edge is every process of fast mode over a scripted engine, "
            f"{TOKENS_A_MESSAGE} tokens a message, less the {edge.idle_cores:.2f} cores that they "
            "take when nothing is asked.",
        ),
    )


def _rate_table(mode: Mode, result: ModeResult, loads: Sequence[Load]) -> Table:
    rows = []
    for load in loads:
        comparisons = result.of(load.concurrency)
        ttft_ms = [value * _MS_PER_S for c in comparisons for value in c.ttft_s]
        rows.append(
            (
                str(load.concurrency),
                _median(c.http_tok_s for c in comparisons),
                _median(statistics.mean(c.in_process_tok_s) for c in comparisons),
                _spread([c.rate_over_in_process for c in comparisons]),
                f"{percentile(ttft_ms, 0.50):.0f}",
                f"{percentile(ttft_ms, 0.99):.0f}",
                _median(100 * c.client_cpu_share for c in comparisons),
            )
        )
    return Table(
        title=f"Ray Serve in {mode.name}: {result.footprint.replica_gib:.2f} GiB in the replica, "
        f"{result.footprint.cluster_gib:.2f} GiB in all processes",
        columns=(
            "in flight",
            "HTTP tok/s",
            "in process tok/s",
            "HTTP over in process",
            "TTFT p50 ms",
            "TTFT p99 ms",
            "client % of a core",
        ),
        rows=tuple(rows),
    )


def _median(values: Iterable[float]) -> str:
    return f"{statistics.median(values):.0f}"


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"

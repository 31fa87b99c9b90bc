"""The tables of a simulation: controllers under a load, and published speed-ups beside the fit."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean

from benchmarks.report import Table
from benchmarks.simulate.h200 import Fit
from benchmarks.simulate.score import Score
from policy.arms import PLAIN
from policy.ticks import Tick


@dataclass(frozen=True, slots=True)
class Run:
    """One controller under one load.

    Attributes:
        ticks: What it did.
        score: What that was worth.
        not_below: Share of intervals not below plain.
    """

    ticks: tuple[Tick, ...]
    score: Score
    not_below: float


def load_table(load: str, share: float, runs: Mapping[str, Run]) -> Table:
    """Return every controller under one load."""
    rows = tuple(
        (
            name,
            f"{run.score.regret:.3f}",
            f"{run.score.over_plain:.3f}",
            f"{run.not_below:.3f}",
            "" if run.score.low_load_loss is None else f"{run.score.low_load_loss:.3f}",
            f"{run.score.switches_per_min:.1f}",
            f"{run.score.probe_share:.3f}",
            f"{run.score.tok_s:,.0f}",
            f"{run.score.latency_s:.2f}",
            f"{1e3 * run.score.tpot_p99_s:.1f}",
        )
        for name, run in runs.items()
    )
    return Table(
        f"Load {load}: {share:g} of what plain decoding keeps up with",
        (
            "controller",
            "regret",
            "over plain",
            "not below plain",
            "low-load loss",
            "switches/min",
            "trials",
            "tok/s",
            "latency s",
            "p99 TPOT ms",
        ),
        rows,
    )


def fit_tables(fit: Fit | None) -> tuple[Table, ...]:
    """Return every published speed-up beside what the fit makes of it."""
    if fit is None:
        return ()
    plain = {(c.task, c.concurrency): c for c in fit.cells if c.drafter == PLAIN}
    rows, errors = [], []
    for cell in fit.cells:
        if cell.drafter == PLAIN:
            continue
        own = plain[cell.task, cell.concurrency]
        published = cell.throughput_tok_s / own.throughput_tok_s
        predicted = fit.predicted_tok_s(cell) / fit.predicted_tok_s(own)
        errors.append(predicted / published - 1.0)
        name = f"{cell.task}, {cell.drafter}, {cell.concurrency}"
        rows.append((name, f"{published:.2f}", f"{predicted:.2f}", f"{errors[-1]:+.1%}"))
    worst = max(map(abs, errors))
    title = (
        f"Published speed-ups and the fit: mean error {mean(map(abs, errors)):.1%}, "
        f"worst {worst:.1%}, over {len(errors)} cells"
    )
    return (Table(title, ("task, drafter, requests", "published", "fit", "error"), tuple(rows)),)

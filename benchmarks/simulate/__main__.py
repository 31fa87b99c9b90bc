"""``python -m benchmarks.simulate``: the policy over a trace, against what could be built instead.

Step times and chances of the model are taken for the truth; the law sees noisy steps and graded
draft tokens, and has to find out. The tuned table is told the truth about both.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from benchmarks.report import Options, Result, Table, progress, run_benchmark
from benchmarks.simulate.baselines import Fixed, Law, as_controllers, every_fixed_arm
from benchmarks.simulate.h200 import Fit, fitted, read_cells
from benchmarks.simulate.models import Model, h200, here
from benchmarks.simulate.score import Score, mean_worth, not_below_plain, recovery_s, scored
from benchmarks.simulate.traces import Trace, read_trace
from policy.arms import PLAIN, PLAIN_ARM
from policy.errors import PolicyError
from policy.limits import Limits
from policy.simulate import Controller, Simulation, Tick
from policy.terms import Terms
from policy.truth import Truth

_LOADS = {"half": 0.5, "full": 1.0, "over": 1.3}
_MOST_ROWS = 64
_NEVER_S = 1e9


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


def measure(options: Options) -> Result:
    """Replay the trace under each load with every controller, then let things go wrong."""
    try:
        return _measured(options)
    except PolicyError as error:
        raise SystemExit(f"benchmarks.simulate: {error}") from error


def _measured(options: Options) -> Result:
    arguments = options.arguments
    fit = None if arguments.vendor_tables is None else fitted(read_cells(arguments.vendor_tables))
    model = _model(arguments.model, fit)
    truth, terms = model.truth, Terms(model.truth.ladder, model.truth.costs)
    trace = read_trace(arguments.trace, model.contents, model.context)
    horizon_s = 180.0 if options.quick else 600.0
    capacity = _capacity(trace, truth)
    makers = _makers(truth, terms, options.quick)
    runs: dict[str, dict[str, Run]] = {}
    with progress(len(_LOADS) * len(makers), "simulate") as bar:
        for name, share in _LOADS.items():
            arrivals = trace.at_rate(capacity * share).up_to(horizon_s)
            runs[name] = _runs(arrivals, truth, makers, horizon_s, bar.update)
    faults = _faults(trace.at_rate(capacity / 2).up_to(horizon_s), truth, terms, horizon_s)
    return Result(
        figures={**_figures(runs), **faults},
        must_hold={"drafted_in_red": 0},
        conditions={"model": arguments.model, "trace": arguments.trace.name},
        detail={"capacity_requests_per_s": capacity, "clipped_share": trace.clipped_share},
        tables=(*(_table(name, runs[name]) for name in runs), *_fit_tables(fit)),
        notes=tuple(_notes(model, trace, capacity, faults)),
    )


def _model(name: str, fit: Fit | None) -> Model:
    """Return what is simulated; this machine is measured first.

    Raises:
        SystemExit: The embedded model cannot be loaded here.
    """
    if name == "h200":
        return h200(None if fit is None else fit.times.table())
    # Both import torch, which a simulation of another device does without.
    from benchmarks.rigs.contest import measured_times
    from benchmarks.speculation.lineup import Wanted, load_lineup
    from dflash.errors import EngineError

    try:
        lineup = load_lineup(Wanted("bfloat16", None))
    except EngineError as error:
        raise SystemExit(f"benchmarks.simulate: {error}") from error
    times = measured_times(lineup, _MOST_ROWS)
    return here(times.ladder, times.costs)


def _capacity(trace: Trace, truth: Truth) -> float:
    """Return the requests a second that plain decoding keeps up with."""
    num = min(300, len(trace.arrivals))
    simulation = Simulation(trace.at_once(num).arrivals, truth, Fixed(PLAIN_ARM))
    simulation.run()
    return num / (simulation.ticks[-1].at_s + simulation.ticks[-1].seconds)


def _makers(truth: Truth, terms: Terms, quick: bool) -> dict[str, Callable[[], Controller]]:
    """Return everything that is compared: baselines, fixed arms, and the law in part."""
    makers = as_controllers(truth, terms)
    if quick:
        return makers
    for arm in every_fixed_arm(truth.ladder):
        if not arm.is_plain:
            makers.setdefault(f"always {arm.name}", lambda arm=arm: Fixed(arm))
    for name, limits in _ABLATIONS.items():
        part = replace(terms, limits=limits)
        makers[name] = lambda part=part: Law(part)
    makers[_WITHOUT_FREE_GRADES] = lambda: Law(terms)
    return makers


_ABLATIONS = {
    "law without trials": Limits(probe_gap_s=_NEVER_S, probe_gap_max_s=_NEVER_S),
    "law without dwell": Limits(dwell_s=1e-6, switches_per_minute=_NEVER_S),
    "law with free trials": Limits(exploration_share=0.2),
}
_WITHOUT_FREE_GRADES = "law without free grades"


def _runs(
    trace: Trace,
    truth: Truth,
    makers: Mapping[str, Callable[[], Controller]],
    horizon_s: float,
    done: Callable[[], object],
) -> dict[str, Run]:
    found: dict[str, Run] = {}
    plain: tuple[Tick, ...] = ()
    for name, make in makers.items():
        world = replace(truth, free_grades=name != _WITHOUT_FREE_GRADES)
        simulation = Simulation(trace.arrivals, world, make())
        # What is left in the queue at the end is worked off for a while, and then left.
        simulation.run(1.5 * horizon_s)
        ticks = tuple(simulation.ticks)
        plain = plain or ticks
        heaviest = truth.ladder.drafters[0]
        widest = truth.ladder.arms_of(heaviest.drafter, heaviest.draft_lengths[-1])[-1]
        found[name] = Run(
            ticks, scored(ticks, simulation.finished, widest), not_below_plain(ticks, plain)
        )
        done()
    return found


def _faults(trace: Trace, truth: Truth, terms: Terms, horizon_s: float) -> dict[str, float]:
    """Return what the law does while its drafter is broken or memory is short, and after."""
    start_s, end_s = horizon_s * 0.3, horizon_s * 0.5

    def lived(world: Truth) -> tuple[list[Tick], list[Tick]]:
        """Return the ticks of all and those of the trouble."""
        simulation = Simulation(trace.arrivals, world, Law(terms))
        simulation.run(1.5 * horizon_s)
        ticks = simulation.ticks
        return ticks, [tick for tick in ticks if start_s < tick.at_s < end_s]

    collapsed, broken = lived(replace(truth, broken={"dflash2": (start_s, end_s)}))
    pressed, red = lived(replace(truth, red=(start_s, end_s)))
    figures: dict[str, float | None] = {
        "recovery_s": recovery_s(collapsed, end_s),
        "recovery_from_red_s": recovery_s(pressed, end_s),
        "worth_while_broken": mean_worth(broken) if broken else None,
    }
    known = {name: value for name, value in figures.items() if value is not None}
    return {**known, "drafted_in_red": sum(not tick.arm.is_plain for tick in red)}


def _figures(runs: Mapping[str, Mapping[str, Run]]) -> dict[str, float]:
    """Return the law's figures, the worst load for each."""
    ours = [controllers["law"] for controllers in runs.values()]
    figures = {
        "regret": max(run.score.regret for run in ours),
        "not_below_plain_share": min(run.not_below for run in ours),
        "switches_per_min": max(run.score.switches_per_min for run in ours),
        "probe_share": mean(run.score.probe_share for run in ours),
    }
    losses = [run.score.low_load_loss for run in ours if run.score.low_load_loss is not None]
    if losses:
        figures["low_load_loss"] = max(losses)
    for name, controllers in runs.items():
        figures[f"regret_at_{name}"] = controllers["law"].score.regret
        figures[f"tuned_table_regret_at_{name}"] = controllers["batch table"].score.regret
    return figures


def _table(load: str, runs: Mapping[str, Run]) -> Table:
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
        f"Load {load}: {_LOADS[load]:g} of what plain decoding keeps up with",
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


def _fit_tables(fit: Fit | None) -> tuple[Table, ...]:
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


def _notes(model: Model, trace: Trace, capacity: float, faults: Mapping[str, float]) -> list[str]:
    notes = [
        f"Plain decoding keeps up with {capacity:.2f} requests/s of this trace. "
        f"{trace.clipped_share:.1%} of its requests were clipped to {model.context} tokens.",
        "Regret is against the best fixed arm of each interval of 5 s; the tuned table knows the "
        f"true step times and mean chances. {model.costs_note}",
    ]
    notes += [
        f"{name} is missing: drafting was not the best again before the end."
        for name in ("recovery_s", "recovery_from_red_s")
        if name not in faults
    ]
    return notes


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trace", type=Path, required=True, help="a published trace of arrivals")
    parser.add_argument(
        "--model",
        choices=("here", "h200"),
        default="h200",
        help="whose step times; this machine's are measured first",
    )
    parser.add_argument(
        "--vendor-tables", type=Path, help="fit the model to this table and print the errors"
    )


if __name__ == "__main__":
    run_benchmark(
        "simulate", "The policy over a trace, against every baseline.", measure, _arguments
    )

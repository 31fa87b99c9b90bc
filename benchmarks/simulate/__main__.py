"""``python -m benchmarks.simulate``: the policy over a trace, against what could be built instead.

Step times and chances of the model are taken for the truth; the law sees noisy steps and graded
draft tokens, and has to find out. The tuned table is told the truth about both.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

from benchmarks.report import Options, Result, progress, run_benchmark
from benchmarks.simulate.baselines import Fixed, Law, as_controllers, every_fixed_arm
from benchmarks.simulate.h200 import Fit, fitted, read_cells
from benchmarks.simulate.models import Model, h200, here
from benchmarks.simulate.score import (
    not_below_plain,
    scored,
)
from benchmarks.simulate.tables import Run, fit_tables, load_table
from benchmarks.simulate.traces import Trace, read_trace
from benchmarks.simulate.troubles import NUM_TROUBLES, Troubles
from policy.arms import PLAIN_ARM
from policy.errors import PolicyError
from policy.limits import Limits
from policy.signals import Signals
from policy.simulate import Controller, Simulation
from policy.terms import Terms
from policy.ticks import Tick
from policy.truth import Truth

_LOADS = {"half": 0.5, "full": 1.0, "over": 1.3}
_MOST_ROWS = 64
_NEVER_S = 1e9
_QUICK_SHARE = 0.3
_TABLES = "vendor_tables.csv"


def measure(options: Options) -> Result:
    """Replay the trace under each load with every controller, then let things go wrong."""
    try:
        return _measured(options)
    except PolicyError as error:
        raise SystemExit(f"benchmarks.simulate: {error}") from error


def _measured(options: Options) -> Result:
    arguments = options.arguments
    tables = arguments.vendor_tables or _tables_beside(arguments.trace)
    fit = None if tables is None or arguments.model != "h200" else fitted(read_cells(tables))
    model = _model(arguments.model, fit)
    truth, terms = model.truth, Terms(model.truth.ladder, model.truth.costs)
    trace = read_trace(arguments.trace, model.contents, model.context)
    horizon_s = model.horizon_s * (_QUICK_SHARE if options.quick else 1.0)
    capacity = _capacity(trace, truth)
    makers = _makers(truth, terms, options.quick)
    runs: dict[str, dict[str, Run]] = {}
    with progress(len(_LOADS) * len(makers) + NUM_TROUBLES, "simulate") as bar:
        for name, share in _LOADS.items():
            arrivals = trace.at_rate(capacity * share).up_to(horizon_s)
            runs[name] = _runs(arrivals, truth, makers, horizon_s, bar.update)
        victim = _favourite(runs["half"]["law"].ticks, truth)
        arrivals = trace.at_rate(capacity / 2).up_to(horizon_s)
        faults = Troubles(arrivals, truth, terms, horizon_s, bar.update).figures(victim)
    return Result(
        figures={**_figures(runs), **faults},
        must_hold={"drafted_in_red": 0},
        conditions={"model": arguments.model, "trace": arguments.trace.name},
        detail={
            "capacity_requests_per_s": capacity,
            "clipped_share": trace.clipped_share,
            "broken_drafter": victim,
        },
        tables=(*(load_table(name, _LOADS[name], runs[name]) for name in runs), *fit_tables(fit)),
        notes=tuple(_notes(model, trace, capacity, faults, is_fitted=fit is not None)),
    )


def _tables_beside(trace: Path) -> Path | None:
    """Return the published tables where they lie beside the traces, or a folder above."""
    places = (trace.parent / _TABLES, trace.parent.parent / _TABLES)
    return next((place for place in places if place.is_file()), None)


def _favourite(ticks: Sequence[Tick], truth: Truth) -> str:
    """Return the drafter that drafted for longest."""
    return max(
        truth.ladder.names,
        key=lambda name: sum(tick.decode_s for tick in ticks if tick.arm.drafter == name),
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
    for name, sight in _BLINDFOLDS.items():
        makers[name] = lambda sight=sight: Law(terms, sight)
    makers[_WITHOUT_FREE_GRADES] = lambda: Law(terms)
    return makers


def _untimed(signals: Signals) -> Signals:
    """Return signals whose steps took nobody knows how long."""
    return replace(signals, steps=tuple(replace(step, step_time_s=0.0) for step in signals.steps))


def _unaware(signals: Signals) -> Signals:
    """Return signals without the requests that wait."""
    return replace(signals, num_waiting=0)


_ABLATIONS = {
    "law without trials": Limits(probe_gap_s=_NEVER_S, probe_gap_max_s=_NEVER_S),
    "law without dwell": Limits(dwell_s=1e-6, switches_per_minute=_NEVER_S),
    "law with free trials": Limits(exploration_share=0.2),
}
_BLINDFOLDS = {"law without live step times": _untimed, "law without the queue": _unaware}
_WITHOUT_FREE_GRADES = "law without free grades"


def _runs(
    trace: Trace,
    truth: Truth,
    makers: Mapping[str, Callable[[], Controller]],
    horizon_s: float,
    done: Callable[[], object],
) -> dict[str, Run]:
    found: dict[str, Run] = {}
    for name, make in makers.items():
        world = replace(truth, free_grades=name != _WITHOUT_FREE_GRADES)
        simulation = Simulation(trace.arrivals, world, make())
        # What is left in the queue at the end is worked off for a while, and then left.
        simulation.run(1.5 * horizon_s)
        ticks = tuple(simulation.ticks)
        heaviest = truth.ladder.drafters[0]
        widest = truth.ladder.arms_of(heaviest.drafter, heaviest.draft_lengths[-1])[-1]
        score = scored(ticks, simulation.finished, widest)
        found[name] = Run(ticks, score, not_below_plain(ticks))
        done()
    return found


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


def _notes(
    model: Model, trace: Trace, capacity: float, faults: Mapping[str, float], *, is_fitted: bool
) -> list[str]:
    notes = [
        f"Plain decoding keeps up with {capacity:.2f} requests/s of this trace. "
        f"{trace.clipped_share:.1%} of its requests were clipped to {model.context} tokens.",
        "Regret is against the best fixed arm of each interval of 5 s; the tuned table knows the "
        f"true step times and mean chances. {model.costs_note}",
        "Noise of step times is left out of regret and of what is below plain: it hits plain "
        "decoding alike. Plain is in place: pages are not simulated, so plain alone is the same.",
    ]
    if model.is_published and not is_fitted:
        notes.append(
            f"Errors of the fit are not printed: no {_TABLES} lies by the trace; give "
            "--vendor-tables."
        )
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
        "--vendor-tables",
        type=Path,
        help=f"published table that h200 is fitted to; by default {_TABLES} beside the trace or a "
        "folder above, and without one the fit made before",
    )


if __name__ == "__main__":
    run_benchmark(
        "simulate", "The policy over a trace, against every baseline.", measure, _arguments
    )

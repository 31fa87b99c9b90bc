"""``python -m benchmarks.waves``: tokens and latency while load and content change."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import cycle
from statistics import median, quantiles

from benchmarks.arms.servers import WatchedPlanner
from benchmarks.prompts import Chat
from benchmarks.report import Options, Result, Table, progress, run_benchmark
from benchmarks.rigs.contest import (
    Contest,
    add_contest_arguments,
    conversations_by_task,
    load_contest,
    measured_times,
)
from benchmarks.simulate.baselines import every_fixed_arm
from benchmarks.speculation.lineup import DrafterAbsentError
from benchmarks.waves.planners import (
    AUTO,
    PLAIN,
    PLAIN_AGAIN,
    adaptive_planners,
    fixed_planner,
)
from benchmarks.waves.ride import Phase, Ride, Rider
from dflash.config import EngineLimits
from dflash.engine import Engine
from dflash.errors import EngineError
from dflash.plan import Planner
from policy.arms import Arm

_LOADS = (1, 32, 1, 64, 2)
_MAX_TOKENS = 64
_NUM_CONVERSATIONS = 96
_FULL_S, _QUICK_S = 15.0, 3.0
# In a quick run of the fixed arms only a few ride: the widest, a narrow one and a short chain.
_QUICK_FIXED = ("dflash2:7", "dflash2:3", "mtp:2")


def measure(options: Options) -> Result:
    """Let every planner ride the same waves, each in an engine of its own."""
    arguments = options.arguments
    try:
        tasks = conversations_by_task(arguments.tasks, _NUM_CONVERSATIONS)
        contest = load_contest(arguments.dtype, arguments.threads, arguments.drafters)
    except (EngineError, DrafterAbsentError) as error:
        sys.exit(str(error))
    chat = Chat(contest.lineup.target.model_folder)
    prompts = {
        name: [chat.token_ids(turns[:1]) for turns in conversations]
        for name, conversations in tasks.items()
    }
    seconds = _QUICK_S if options.quick else _FULL_S
    # The content changes with every load.
    phases = [
        Phase(rows, task, seconds) for rows, task in zip(_LOADS, cycle(prompts), strict=False)
    ]
    times = measured_times(contest.lineup, max(_LOADS))
    arms = [arm for arm in every_fixed_arm(times.ladder) if not arm.is_plain]
    if options.quick:
        arms = [arm for arm in arms if arm.name in _QUICK_FIXED]
    planners: dict[str, Callable[[], Planner] | None] = {
        PLAIN: None,
        **{arm.name: _fixed(arm) for arm in arms},
        **adaptive_planners(times),
        PLAIN_AGAIN: None,
    }
    rides: dict[str, Ride] = {}
    said: dict[str, str] = {}
    with progress(len(planners) * len(phases), "waves") as bar:
        for name, make in planners.items():
            watched = make and WatchedPlanner(make())
            engine = _engine(contest, watched)
            asked: dict[str, Iterator[list[int]]] = {
                task: cycle(each) for task, each in prompts.items()
            }
            rides[name] = Rider(engine, asked, _MAX_TOKENS).ride(phases, bar.update)
            said[name] = "" if watched is None else _said(watched)
    best = max(rides[arm.name].num_tokens for arm in arms)
    plain = rides[PLAIN].num_tokens
    return Result(
        figures={
            "tokens_over_best_fixed": rides[AUTO].num_tokens / max(best, plain),
            "tokens_over_plain": rides[AUTO].num_tokens / plain,
            "p99_tpot_over_plain": _p99(rides[AUTO].tpot_s) / _p99(rides[PLAIN].tpot_s),
            "again_over_plain": rides[PLAIN_AGAIN].num_tokens / plain,
        },
        conditions={
            "dtype": arguments.dtype,
            "exactness": contest.lineup.target.exactness.form,
            "phases": ", ".join(f"{phase.num_requests} {phase.task}" for phase in phases),
            "phase_s": f"{seconds:g}",
        },
        detail={name: asdict(ride) for name, ride in rides.items()},
        tables=(_table(rides, said, phases),),
    )


def _fixed(arm: Arm) -> Callable[[], Planner]:
    return lambda: fixed_planner(arm)


def _engine(contest: Contest, planner: Planner | None) -> Engine:
    limits = EngineLimits(max_num_seqs=max(_LOADS))
    # Without the prefix cache no ride profits from another's prompts, nor from its own.
    if planner is None:
        return Engine(contest.plain.runner, limits, prefix_caching=False)
    lineup = contest.lineup
    return Engine(
        lineup.target.runner,
        limits,
        drafters=lineup.drafters,
        planner=planner,
        prefix_caching=False,
    )


def _table(rides: dict[str, Ride], said: dict[str, str], phases: list[Phase]) -> Table:
    plain = rides[PLAIN]
    rows = []
    for name, ride in rides.items():
        by_phase = zip(ride.by_phase, plain.by_phase, strict=True)
        rows.append(
            (
                name,
                f"{ride.num_tokens / plain.num_tokens:.2f}",
                *(f"{ours / theirs:.2f}" for ours, theirs in by_phase),
                f"{1e3 * median(ride.tpot_s):.0f}",
                f"{1e3 * _p99(ride.tpot_s):.0f}",
                f"{1e3 * median(ride.ttft_s):.0f}",
                f"{1e3 * _p99(ride.ttft_s):.0f}",
                said[name],
            )
        )
    columns = ("planner", "all", *(str(phase.num_requests) for phase in phases))
    latency = ("TPOT p50 ms", "p99", "TTFT p50 ms", "p99")
    title = "Tokens over plain, in all and by requests at once; latency; what ran"
    return Table(title, (*columns, *latency, "steps"), tuple(rows))


def _said(watched: WatchedPlanner) -> str:
    total = watched.said.total()
    return ", ".join(f"{arm.name} {n / total:.0%}" for arm, n in watched.said.most_common(3))


def _p99(values: tuple[float, ...]) -> float:
    return quantiles(values, n=100, method="inclusive")[-1]


if __name__ == "__main__":
    run_benchmark(
        "waves",
        "Tokens and latency of the live policy while load and content change.",
        measure,
        add_contest_arguments,
    )

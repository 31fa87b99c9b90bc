"""``python -m benchmarks.arms``: the live policy beside plain decoding and every fixed arm."""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import cycle, zip_longest
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.arms.servers import AUTO, PLAIN_IN_PLACE, Servers
from benchmarks.arms.summary import figures, ran_table, ratio_table
from benchmarks.prompts import Chat
from benchmarks.report import Options, Result, progress, run_benchmark
from benchmarks.rigs.planners import reach_of
from benchmarks.speculation.arms import PLAIN, PLAIN_AGAIN, Arm, grid_arms
from benchmarks.speculation.lineup import (
    DrafterAbsentError,
    Lineup,
    Wanted,
    drafter_names,
    load_lineup,
)
from benchmarks.speculation.runs import GridLoad, grid_visits
from benchmarks.speculation.serving import Server
from benchmarks.speculation.summary import Grid
from benchmarks.speculation.tasks import Turns, read_tasks, sample
from benchmarks.speculation.visits import Load, ids_that_differ
from deployments.control import PolicyPlanner
from deployments.step_times import StepTimes, step_times_of
from dflash.config import Dtype, EngineConfig, EngineLimits, KVCacheConfig
from dflash.engine import Engine
from dflash.errors import EngineError
from dflash.load import load_target
from dflash.train.prompts.mix import held_out_prompts

_LEAST_TOLERANCE = 0.02
_MEMORY_GIB = 0.75
_MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured.

    Attributes:
        loads: Concurrency, requests and rounds.
        max_tokens: Most tokens of an answer.
    """

    loads: tuple[tuple[int, int, int], ...]
    max_tokens: int

    @property
    def num_conversations(self) -> int:
        """Conversations that are needed, each asked once."""
        return sum(num_requests * num_rounds for _, num_requests, num_rounds in self.loads)


_FULL = Extent(
    tuple((rows, max(4, rows), 4 if rows <= 8 else 2) for rows in (1, 2, 4, 8, 16, 32, 64)), 128
)
_QUICK = Extent(((1, 2, 2), (8, 8, 2), (32, 32, 1)), 64)


def measure(options: Options) -> Result:
    """Serve every load in every arm."""
    extent = _QUICK if options.quick else _FULL
    arguments = options.arguments
    try:
        lineup = load_lineup(
            Wanted(
                dtype=arguments.dtype,
                num_threads=arguments.threads,
                names=arguments.drafters,
                memory_gib=_MEMORY_GIB,
            )
        )
        # What the drafters would take is its pages', so that plain decoding gets a fair start.
        memory_gib = _MEMORY_GIB + sum(_size_bytes(folder) for folder in lineup.folders) / 2**30
        plain = load_target(
            EngineConfig(
                dtype=Dtype(arguments.dtype),
                num_threads=arguments.threads,
                kv_cache=KVCacheConfig(memory_gib=memory_gib),
            )
        )
        conversations = _conversations(arguments.tasks, extent.num_conversations)
    except (EngineError, DrafterAbsentError) as error:
        sys.exit(str(error))
    with progress(100, "measuring step times") as bar:
        times = _step_times(lineup, max(rows for rows, *_ in extent.loads), bar.update)
    servers = Servers(
        Server(plain.runner, ()),
        Server(lineup.target.runner, lineup.drafters),
        PolicyPlanner(times),
    )
    grid = _grid(servers, lineup, conversations, extent)
    found = figures(grid)
    most = max(grid.loads, key=lambda load: load.concurrency)
    bound = 1.0 - max(found["noise_aa"], _LEAST_TOLERANCE)
    return Result(
        figures={
            "ids_differ": ids_that_differ(grid.visits, PLAIN),
            **found,
            "planner_share_of_step": median(servers.planner_shares[most]),
        },
        must_hold={"ids_differ": 0},
        must_exceed={"auto_over_plain_min": bound},
        conditions={
            "dtype": arguments.dtype,
            "exactness": lineup.target.exactness.form,
            "drafters": ", ".join(drafter.facts.name for drafter in lineup.drafters),
        },
        detail={"visits": [asdict(visit) for visit in grid.visits]},
        tables=(ratio_table(grid), ran_table(servers.said)),
    )


def _grid(servers: Servers, lineup: Lineup, conversations: list[Turns], extent: Extent) -> Grid:
    arms = (*grid_arms(reach_of(lineup.drafters))[:-1], Arm(PLAIN_IN_PLACE), Arm(AUTO))
    arms = (*arms, Arm(PLAIN_AGAIN))
    chat = Chat(lineup.target.model_folder)
    prompts: Iterator[list[int]] = (chat.token_ids(turns[:1]) for turns in cycle(conversations))
    loads = [
        GridLoad(Load(_MIXED, rows, num_requests, extent.max_tokens, 0.0), num_rounds)
        for rows, num_requests, num_rounds in extent.loads
    ]
    total = len(arms) * sum(load.num_rounds for load in loads)
    with progress(total, "visits") as bar:
        return Grid(grid_visits(servers, prompts, loads, arms, bar.update), arms)


def _step_times(lineup: Lineup, most_rows: int, on_percent: Callable[[float], object]) -> StepTimes:
    """Measure as a replica does at its start; nothing is kept from another run."""
    engine = Engine(
        lineup.target.runner,
        EngineLimits(max_num_seqs=most_rows),
        drafters=lineup.drafters,
    )
    shown = 0

    def show(share: float) -> None:
        nonlocal shown
        on_percent(int(100 * share) - shown)
        shown = int(100 * share)

    with TemporaryDirectory() as folder:
        return step_times_of(engine, {}, Path(folder), show)


def _conversations(folder: Path | None, count: int) -> list[Turns]:
    """Return conversations of our mix and of every task file, one of each in turn."""
    mix = [prompt.turns for prompt in held_out_prompts(count)]
    files = read_tasks(folder) if folder else {}
    lists = [mix, *(sample(each, count, seed=0) for each in files.values())]
    return [turns for group in zip_longest(*lists) for turns in group if turns is not None]


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tasks", type=Path, metavar="DIR", help="folder of task files; our mix is always in"
    )
    parser.add_argument("--dtype", default="bfloat16", choices=[dtype.value for dtype in Dtype])
    parser.add_argument("--threads", type=int, default=None, help="all CPUs by default")
    parser.add_argument(
        "--drafters",
        type=drafter_names,
        default=(),
        metavar="LIST",
        help="comma-separated, of the shipped ones only these; such as dflash2,mtp",
    )


if __name__ == "__main__":
    run_benchmark(
        "arms",
        "Speed of the live policy over plain decoding and over the best fixed arm, by load.",
        measure,
        _add_arguments,
    )

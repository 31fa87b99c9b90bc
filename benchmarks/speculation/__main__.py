"""``python -m benchmarks.speculation``: what drafting brings, by task, load and draft length."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

from benchmarks.prompts import Chat
from benchmarks.report import Options, Result, progress, run_benchmark
from benchmarks.rigs.planners import reach_of
from benchmarks.speculation.arms import PLAIN, Arm, drafting_arm, grid_arms
from benchmarks.speculation.lineup import (
    DrafterAbsentError,
    Lineup,
    Wanted,
    drafter_names,
    full_head_drafter,
    load_lineup,
)
from benchmarks.speculation.runs import GridLoad, acceptance_on, grid_visits
from benchmarks.speculation.serving import Server
from benchmarks.speculation.summary import (
    Grid,
    acceptance_figures,
    acceptance_table,
    best_cells_figures,
    best_table,
    cost_figures,
    cost_table,
    draft_over_plain_step,
    grid_figures,
    grid_tables,
    prefixes,
)
from benchmarks.speculation.tasks import MIX, Turns, read_tasks, sample
from benchmarks.speculation.visits import Acceptance, Load, Visit, ids_that_differ
from dflash.config import Dtype
from dflash.drafters.base import DrafterKind
from dflash.errors import EngineError
from dflash.train.prompts.mix import held_out_prompts

_ACCEPTANCE_CONCURRENCY = 8
_SPEEDUP, _LEAST_SPEEDUP = "speedup_at_1_best_width", 1.5
# The chain that the aim for its acceptance length is about.
_CHAIN_LENGTH = 2
_GridShape = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured.

    Attributes:
        mix_grid: Concurrency, requests and rounds of each load of our mix.
        task_grid: The same of every other task.
        num_conversations: Of each task, for its acceptance length.
        max_tokens: Most tokens of an answer.
    """

    mix_grid: _GridShape
    task_grid: _GridShape
    num_conversations: int
    max_tokens: int

    def grid_of(self, task: str) -> _GridShape:
        """Return the loads of a task."""
        return self.mix_grid if task == MIX else self.task_grid

    def num_prompts(self, task: str) -> int:
        """Return how many conversations of a task are needed."""
        in_grid = sum(
            num_requests * num_rounds for _, num_requests, num_rounds in self.grid_of(task)
        )
        return max(in_grid, self.num_conversations)


_FULL = Extent(
    mix_grid=((1, 4, 5), (8, 24, 4), (32, 64, 3)),
    task_grid=((1, 3, 1), (8, 8, 1), (32, 32, 1)),
    num_conversations=48,
    max_tokens=128,
)
_QUICK = Extent(
    mix_grid=((1, 2, 3), (8, 8, 2), (32, 32, 1)),
    task_grid=(),
    num_conversations=8,
    max_tokens=96,
)


def measure(options: Options) -> Result:
    """Measure acceptance on every task, then speed on our mix."""
    extent = _QUICK if options.quick else _FULL
    arguments = options.arguments
    try:
        tasks = _tasks(arguments.tasks, extent)
        lineup = load_lineup(
            Wanted(
                dtype=arguments.dtype,
                num_threads=arguments.threads,
                folders=tuple(arguments.drafter),
                names=arguments.drafters,
                may_make_up=arguments.random_weights,
            )
        )
    except (EngineError, DrafterAbsentError) as error:
        sys.exit(str(error))
    run = _Run(lineup, extent)
    found = {arm: run.acceptance(tasks, arguments.temperature, arm) for arm in run.typical_arms}
    grid = run.grid(tasks, arguments.temperature)
    full_head = run.full_head_figures(tasks[MIX])
    begins = prefixes(grid.drafters)
    return Result(
        figures={
            "ids_differ": ids_that_differ(grid.visits, PLAIN),
            **{
                name: length
                for arm, each in found.items()
                for name, length in acceptance_figures(each, begins[arm.drafter]).items()
            },
            **grid_figures(grid),
            **cost_figures(grid),
            **best_cells_figures(grid),
            **full_head,
        },
        must_hold={"ids_differ": 0},
        # Random weights are no drafter to gain with.
        must_exceed={} if lineup.made_up else {_SPEEDUP: _LEAST_SPEEDUP},
        conditions={
            "dtype": arguments.dtype,
            "exactness": lineup.target.exactness.form,
            "drafters": ", ".join(drafter.facts.name for drafter in lineup.drafters),
        },
        detail={
            "visits": [asdict(visit) for visit in grid.visits],
            "acceptance": [
                {"arm": arm.name, "task": task, "temperature": temperature, **asdict(acceptance)}
                for arm, each in found.items()
                for (task, temperature), acceptance in each.items()
            ],
        },
        tables=(
            *grid_tables(grid),
            cost_table(grid),
            best_table(grid),
            *(acceptance_table(each, arm, _ACCEPTANCE_CONCURRENCY) for arm, each in found.items()),
        ),
        notes=tuple(_notes(lineup, bool(full_head))),
    )


def _notes(lineup: Lineup, has_full_head: bool) -> Iterator[str]:
    for name in lineup.made_up:
        yield f"{name} has random weights: its cost is real, its drafts are noise"
    if has_full_head:
        yield "draft_over_plain_step_at_1_full_head is of a drafter with random weights"


class _Run:
    """One loaded lineup, measured in parts."""

    def __init__(self, lineup: Lineup, extent: Extent) -> None:
        runner, full_head = lineup.target.runner, full_head_drafter(lineup)
        self._server = Server(runner, lineup.drafters)
        self._full_head = Server(runner, [full_head]) if full_head else None
        self._chat = Chat(lineup.target.model_folder)
        self._extent = extent
        self._reach = reach_of(lineup.drafters)

    @property
    def typical_arms(self) -> list[Arm]:
        """The arm that each drafter's acceptance is measured in: a block whole, a chain of two."""
        return [
            drafting_arm(name, min(most, _CHAIN_LENGTH) if name == DrafterKind.MTP else most)
            for name, most in self._reach.items()
        ]

    def acceptance(
        self, tasks: dict[str, list[Turns]], temperatures: Sequence[float], arm: Arm
    ) -> dict[tuple[str, float], Acceptance]:
        """Answer each task's conversations in an arm, at every temperature."""
        found = {}
        with progress(len(tasks) * len(temperatures), f"acceptance of {arm.name}") as bar:
            for temperature in temperatures:
                for task, conversations in tasks.items():
                    some = conversations[: self._extent.num_conversations]
                    load = self._load(task, (_ACCEPTANCE_CONCURRENCY, len(some)), temperature)
                    found[task, temperature] = acceptance_on(
                        self._server, self._chat, some, load, arm
                    )
                    bar.update()
        return found

    def grid(self, tasks: dict[str, list[Turns]], temperatures: Sequence[float]) -> Grid:
        """Serve every task in every arm, load and temperature."""
        arms = grid_arms(self._reach)
        shapes = {task: self._extent.grid_of(task) for task in tasks}
        num_rounds = sum(num_rounds for shape in shapes.values() for *_, num_rounds in shape)
        visits: list[Visit] = []
        with progress(len(temperatures) * len(arms) * num_rounds, "visits") as bar:
            for temperature in temperatures:
                for task, shape in shapes.items():
                    # A small task file is asked more than once; no answer is kept between visits.
                    prompts = (self._chat.token_ids(turns[:1]) for turns in cycle(tasks[task]))
                    loads = [
                        GridLoad(self._load(task, size, temperature), num_rounds)
                        for *size, num_rounds in shape
                    ]
                    visits += grid_visits(self._server, prompts, loads, arms, bar.update)
        return Grid(visits, arms)

    def full_head_figures(self, mix: list[Turns]) -> dict[str, float]:
        """Price a head over the whole vocabulary at 1 request, between two plain visits."""
        if self._full_head is None:
            return {}
        load = self._load(MIX, (1, 1), 0.0)
        prompts = [self._chat.token_ids(mix[0][:1])]
        arm = next(arm for arm in self.typical_arms if arm.drafter != DrafterKind.MTP)
        before = self._server.visit(prompts, load, Arm(PLAIN), 0)
        drafting = self._full_head.visit(prompts, load, arm, 0)
        after = self._server.visit(prompts, load, Arm(PLAIN), 1)
        cost = draft_over_plain_step([drafting], [before, after])
        return {"draft_over_plain_step_at_1_full_head": cost}

    def _load(self, task: str, size: Sequence[int], temperature: float) -> Load:
        concurrency, num_requests = size
        return Load(task, concurrency, num_requests, self._extent.max_tokens, temperature)


def _tasks(folder: Path | None, extent: Extent) -> dict[str, list[Turns]]:
    """Return our mix and a sample of each task file."""
    mix = [prompt.turns for prompt in held_out_prompts(extent.num_prompts(MIX))]
    files = read_tasks(folder) if folder else {}
    samples = {name: sample(each, extent.num_prompts(name), seed=0) for name, each in files.items()}
    return {**samples, MIX: mix}


def temperatures(text: str) -> list[float]:
    """Return the temperatures in a comma-separated list.

    Raises:
        ArgumentTypeError: One is no temperature, or 0 is missing: what must hold is greedy.
    """
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers; try 0,1") from None
    if 0.0 not in found or not all(0.0 <= each <= 100.0 for each in found):
        raise argparse.ArgumentTypeError(f"{text!r} must hold 0 and lie in [0, 100]; try 0,1")
    return found


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tasks", type=Path, metavar="DIR", help="folder of task files; our mix is always in"
    )
    parser.add_argument(
        "--temperature",
        type=temperatures,
        default=[0.0, 1.0],
        metavar="LIST",
        help="comma-separated, 0 among them (default: 0,1)",
    )
    parser.add_argument("--dtype", default="bfloat16", choices=[dtype.value for dtype in Dtype])
    parser.add_argument("--threads", type=int, default=None, help="all CPUs by default")
    parser.add_argument(
        "--drafter",
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="drafters to load; the shipped ones by default",
    )
    parser.add_argument(
        "--drafters",
        type=drafter_names,
        default=(),
        metavar="LIST",
        help="comma-separated, of those only these; such as dflash2,mtp",
    )
    parser.add_argument(
        "--random-weights", action="store_true", help="make up what --drafters names and is absent"
    )


if __name__ == "__main__":
    run_benchmark(
        "speculation",
        "Acceptance length by task, and speed beside plain decoding by load and draft length.",
        measure,
        _add_arguments,
    )

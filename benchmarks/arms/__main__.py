"""``python -m benchmarks.arms``: the live policy beside plain decoding and every fixed arm."""

import sys
from dataclasses import asdict, dataclass
from itertools import cycle
from statistics import median

from benchmarks.arms.servers import AUTO, PLAIN_IN_PLACE, Servers
from benchmarks.arms.summary import figures, ran_table, ratio_table
from benchmarks.prompts import Chat
from benchmarks.report import Options, Result, progress, run_benchmark
from benchmarks.rigs.contest import (
    add_contest_arguments,
    conversations_by_task,
    load_contest,
    measured_times,
    one_of_each,
)
from benchmarks.rigs.planners import reach_of
from benchmarks.speculation.arms import PLAIN, PLAIN_AGAIN, Arm, grid_arms
from benchmarks.speculation.lineup import DrafterAbsentError, Lineup
from benchmarks.speculation.runs import GridLoad, grid_visits
from benchmarks.speculation.serving import Server
from benchmarks.speculation.summary import Grid
from benchmarks.speculation.tasks import Turns
from benchmarks.speculation.visits import Load, ids_that_differ
from deployments.control import PolicyPlanner
from dflash.errors import EngineError

_LEAST_TOLERANCE = 0.02
_MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured.

    Attributes:
        loads: Concurrency, requests and rounds.
        max_tokens: Most tokens of an answer.
        fixed: Names of the fixed arms; none for every drafter at each of its draft lengths.
    """

    loads: tuple[tuple[int, int, int], ...]
    max_tokens: int
    fixed: tuple[str, ...] = ()

    @property
    def num_conversations(self) -> int:
        """Conversations that are needed, each asked once."""
        return sum(num_requests * num_rounds for _, num_requests, num_rounds in self.loads)


_FULL = Extent(
    tuple((rows, max(4, rows), 4 if rows <= 8 else 2) for rows in (1, 2, 4, 8, 16, 32, 64)), 128
)
_QUICK = Extent(
    ((1, 2, 2), (8, 12, 2), (32, 32, 2)), 96, ("dflash2:3", "dflash2:7", "mtp:1", "mtp:3")
)


def measure(options: Options) -> Result:
    """Serve every load in every arm."""
    extent = _QUICK if options.quick else _FULL
    arguments = options.arguments
    try:
        tasks = conversations_by_task(arguments.tasks, extent.num_conversations)
        contest = load_contest(arguments.dtype, arguments.threads, arguments.drafters)
    except (EngineError, DrafterAbsentError) as error:
        sys.exit(str(error))
    lineup = contest.lineup
    times = measured_times(lineup, max(rows for rows, *_ in extent.loads))
    servers = Servers(
        Server(contest.plain.runner, ()),
        Server(lineup.target.runner, lineup.drafters),
        PolicyPlanner(times),
    )
    conversations = one_of_each(tasks)
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
    fixed = [
        arm
        for arm in grid_arms(reach_of(lineup.drafters))
        if arm.draft_length and (not extent.fixed or arm.name in extent.fixed)
    ]
    arms = (Arm(PLAIN), *fixed, Arm(PLAIN_IN_PLACE), Arm(AUTO), Arm(PLAIN_AGAIN))
    chat = Chat(lineup.target.model_folder)
    prompts = (chat.token_ids(turns[:1]) for turns in cycle(conversations))
    loads = [
        GridLoad(Load(_MIXED, rows, num_requests, extent.max_tokens, 0.0), num_rounds)
        for rows, num_requests, num_rounds in extent.loads
    ]
    total = len(arms) * sum(load.num_rounds for load in loads)
    with progress(total, "visits") as bar:
        return Grid(grid_visits(servers, prompts, loads, arms, bar.update), arms)


if __name__ == "__main__":
    run_benchmark(
        "arms",
        "Speed of the live policy over plain decoding and over the best fixed arm, by load.",
        measure,
        add_contest_arguments,
    )

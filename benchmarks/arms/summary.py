"""What the policy was worth beside every fixed arm."""

from collections import Counter
from collections.abc import Mapping

from benchmarks.arms.servers import AUTO, PLAIN_IN_PLACE
from benchmarks.report import Table
from benchmarks.speculation.arms import PLAIN, PLAIN_AGAIN
from benchmarks.speculation.summary import Grid
from benchmarks.speculation.visits import Load
from policy.arms import Arm as PolicyArm

_NOISE_SHARE = 0.95


def fixed_names(grid: Grid) -> list[str]:
    """Return the arms whose plan is fixed, plain decoding in place among them."""
    return [arm.name for arm in grid.arms if arm.name not in (AUTO, PLAIN, PLAIN_AGAIN)]


def over_plain(grid: Grid, load: Load) -> float:
    """Return the policy's speed over that of an engine without drafters."""
    return grid.over_plain(load, AUTO)


def over_best(grid: Grid, load: Load) -> float:
    """Return the policy's speed over the best fixed arm's, plain decoding among those.

    The best of many noisy arms looks better than it is, so this is rather too low.
    """
    best = max(1.0, *(grid.over_plain(load, name) for name in fixed_names(grid)))
    return grid.over_plain(load, AUTO) / best


def noise(grid: Grid) -> float:
    """Return what plain's second visit differed from its first by, at the 95th percentile."""
    found = sorted(
        abs(again.tok_s / first.tok_s - 1.0)
        for load in grid.loads
        for first, again in zip(grid.of(load, PLAIN), grid.of(load, PLAIN_AGAIN), strict=True)
    )
    return found[min(len(found) - 1, int(_NOISE_SHARE * len(found)))]


def figures(grid: Grid) -> dict[str, float]:
    """Return the ratios at every load, and their least."""
    plain = {load.concurrency: over_plain(grid, load) for load in grid.loads}
    best = {load.concurrency: over_best(grid, load) for load in grid.loads}
    return {
        "auto_over_best_fixed_min": min(best.values()),
        "auto_over_plain_min": min(plain.values()),
        "noise_aa": noise(grid),
        **{f"auto_over_best_at_{rows}": ratio for rows, ratio in best.items()},
        **{f"auto_over_plain_at_{rows}": ratio for rows, ratio in plain.items()},
    }


def ratio_table(grid: Grid) -> Table:
    """Return every arm's speed over plain, and its acceptance length, by load."""
    rows = []
    for arm in grid.arms:
        cells = [arm.name]
        for load in grid.loads:
            cells.append(f"{grid.over_plain(load, arm.name):.2f}")
            cells.append(_acceptance_length(grid, load, arm.name))
        rows.append(tuple(cells))
    return Table(
        f"Speed over plain, and acceptance length, by requests at once ({PLAIN_IN_PLACE}: with "
        "the drafters in memory)",
        ("arm", *(cell for load in grid.loads for cell in (str(load.concurrency), "length"))),
        tuple(rows),
    )


def ran_table(said: Mapping[Load, Counter[PolicyArm]]) -> Table:
    """Return what the policy ran, as shares of the steps of each load."""
    rows = []
    for load, counts in said.items():
        total = counts.total()
        shares = ", ".join(f"{arm.name} {n / total:.0%}" for arm, n in counts.most_common(4))
        rows.append((str(load.concurrency), shares))
    return Table("What the policy ran", ("requests", "arms"), tuple(rows))


def _acceptance_length(grid: Grid, load: Load, arm: str) -> str:
    visits = grid.of(load, arm)
    drafting = sum(visit.acceptance.num_drafting for visit in visits)
    accepted = sum(visit.acceptance.num_accepted for visit in visits)
    return f"{1 + accepted / drafting:.2f}" if drafting else "-"

"""Visits turned into figures and tables."""

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.report import Table
from benchmarks.speculation.arms import PLAIN, PLAIN_AGAIN, Arm
from benchmarks.speculation.tasks import MIX
from benchmarks.speculation.visits import Acceptance, Load, Visit
from dflash.drafters.base import DrafterKind


@dataclass(frozen=True, slots=True)
class Grid:
    """The visits of the throughput grid.

    Attributes:
        visits: Of all loads, arms and rounds.
        arms: In the order of the tables.
    """

    visits: Sequence[Visit]
    arms: tuple[Arm, ...]

    @property
    def loads(self) -> list[Load]:
        """Every load, in the order of the first visits."""
        return list(dict.fromkeys(visit.load for visit in self.visits))

    def of_task(self, task: str) -> list[Load]:
        """Return the loads of one task."""
        return [load for load in self.loads if load.task == task]

    def of(self, load: Load, arm: str) -> list[Visit]:
        """Return one arm's visits with a load, by round."""
        found = [visit for visit in self.visits if (visit.load, visit.arm) == (load, arm)]
        return sorted(found, key=lambda visit: visit.round_index)

    def tok_s(self, load: Load, arm: str) -> float:
        """Return the median speed of an arm, output tokens/s."""
        return statistics.median(visit.tok_s for visit in self.of(load, arm))

    def over_plain(self, load: Load, arm: str) -> float:
        """Return the median over rounds of an arm's speed over plain's in the same round.

        Plain's is the mean of its two visits, one on either side of the arm's.
        """
        return statistics.median(
            2 * ours.tok_s / (first.tok_s + again.tok_s)
            for ours, first, again in zip(
                self.of(load, arm), self.of(load, PLAIN), self.of(load, PLAIN_AGAIN), strict=True
            )
        )

    def again_over_first(self, load: Load) -> float:
        """Return the median over rounds of plain's second speed over its first: 1 but for noise."""
        pairs = zip(self.of(load, PLAIN_AGAIN), self.of(load, PLAIN), strict=True)
        return statistics.median(again.tok_s / first.tok_s for again, first in pairs)

    def best(self, load: Load, drafters: Collection[str]) -> tuple[Arm, float]:
        """Return the arm of these drafters with the largest ratio to plain, and that ratio."""
        arms = (arm for arm in self.arms if arm.drafter in drafters)
        ratios = [(arm, self.over_plain(load, arm.name)) for arm in arms]
        return max(ratios, key=lambda pair: pair[1])

    @property
    def drafters(self) -> tuple[str, ...]:
        """Who drafts in its arms."""
        return tuple(dict.fromkeys(arm.drafter for arm in self.arms if arm.draft_length))

    def best_cells(self, drafter: str) -> list[Load]:
        """Return the loads on which a drafter is better than plain and than all others."""
        best = {load: self.best(load, self.drafters) for load in self.loads}
        return [load for load, (arm, x) in best.items() if arm.drafter == drafter and x > 1.0]


def marked(name: str, temperature: float) -> str:
    """Return the name of a figure taken at this temperature: bare when greedy."""
    head, _, tail = name.partition("@")
    return f"{head}_t{temperature:g}{tail}" if temperature else f"{head}{tail}"


def prefixes(drafters: Sequence[str]) -> dict[str, str]:
    """Return what figures of each drafter begin with: nothing for the first block drafter."""
    blocks = [name for name in drafters if name != DrafterKind.MTP]
    return {name: "" if name in blocks[:1] else f"{name}_" for name in drafters}


def grid_figures(grid: Grid) -> dict[str, float]:
    """Return speed-ups at each drafter's best width on our mix, and the noise beside them."""
    figures: dict[str, float] = {}
    for load in grid.of_task(MIX):
        at = f"_at_{load.concurrency}"
        for name, prefix in prefixes(grid.drafters).items():
            figure = marked(f"{prefix}speedup@{at}_best_width", load.temperature)
            figures[figure] = grid.best(load, [name])[1]
        figures[marked(f"again_over_plain@{at}", load.temperature)] = grid.again_over_first(load)
    return figures


def cost_figures(grid: Grid) -> dict[str, float]:
    """Return what drafting costs at 1 greedy request on our mix, in plain steps.

    A block drafter's is that of its widest pass, since it computes its block anyway; a chain's is
    that of one draft token.
    """
    load = next(
        load for load in grid.of_task(MIX) if (load.concurrency, load.temperature) == (1, 0.0)
    )
    plain = [*grid.of(load, PLAIN), *grid.of(load, PLAIN_AGAIN)]
    figures: dict[str, float] = {}
    for name, prefix in prefixes(grid.drafters).items():
        arms = sorted((a for a in grid.arms if a.drafter == name), key=lambda a: a.draft_length)
        arm = arms[0 if name == DrafterKind.MTP else -1]
        cost = draft_over_plain_step(grid.of(load, arm.name), plain)
        figures[f"{prefix}draft_over_plain_step_at_1"] = cost
    return figures


def best_cells_figures(grid: Grid) -> dict[str, float]:
    """Return on how many tasks and loads each drafter but the first block drafter is best."""
    return {
        f"{prefix}best_cells": len(grid.best_cells(name))
        for name, prefix in prefixes(grid.drafters).items()
        if prefix
    }


def best_table(grid: Grid) -> Table:
    """Return the best arm of each task and load."""
    rows = []
    for load in grid.loads:
        arm, ratio = grid.best(load, grid.drafters)
        name = arm.name if ratio > 1.0 else PLAIN
        cells = (f"{load.temperature:g}", str(load.concurrency), name, f"{ratio:.2f}")
        rows.append((load.task, *cells))
    return Table(
        "The best arm of each load, and the ratio to plain of the best that drafts",
        ("task", "temperature", "requests", "arm", "ratio"),
        tuple(rows),
    )


def draft_over_plain_step(drafting: Sequence[Visit], plain: Sequence[Visit]) -> float:
    """Return the drafter's median time in a step that drafts over the median plain step."""
    passes = [seconds for visit in drafting for seconds in visit.draft_s if seconds > 0.0]
    return statistics.median(passes) / _median_step_s(plain)


def _median_step_s(visits: Sequence[Visit]) -> float:
    return statistics.median(seconds for visit in visits for seconds in visit.decode_step_s)


def cost_table(grid: Grid) -> Table:
    """Return what a decode step costs at each width and load of our mix, greedy, in plain steps.

    The drafter's part stands beside it; what is left is the target's step over the verified width.
    """
    loads = [load for load in grid.of_task(MIX) if load.temperature == 0.0]
    rows = []
    for arm in grid.arms:
        cells = [arm.name]
        for load in loads:
            visits = grid.of(load, arm.name)
            plain = [*grid.of(load, PLAIN), *grid.of(load, PLAIN_AGAIN)]
            cells.append(f"{_median_step_s(visits) / _median_step_s(plain):.2f}")
            cells.append(f"{draft_over_plain_step(visits, plain):.2f}" if arm.draft_length else "-")
        rows.append(tuple(cells))
    return Table(
        "Cost of a decode step, and of the drafter in it, in plain steps of the same load",
        ("arm", *(f"{what} at {x.concurrency}" for x in loads for what in ("step", "drafter"))),
        tuple(rows),
    )


def grid_tables(grid: Grid) -> tuple[Table, ...]:
    """Return, for each task and temperature, speeds and ratios by draft length and concurrency."""
    parts: dict[tuple[str, float], list[Load]] = {}
    for load in grid.loads:
        parts.setdefault((load.task, load.temperature), []).append(load)
    return tuple(_grid_table(grid, *part, loads) for part, loads in parts.items())


def _grid_table(grid: Grid, task: str, temperature: float, loads: Sequence[Load]) -> Table:
    rows = []
    for arm in grid.arms:
        cells = [arm.name]
        for load in loads:
            cells += [
                f"{grid.tok_s(load, arm.name):.0f}",
                f"{grid.over_plain(load, arm.name):.2f}",
                _length_text([visit.acceptance for visit in grid.of(load, arm.name)]),
            ]
        rows.append(tuple(cells))
    return Table(
        f"{task} at temperature {temperature:g}: output tokens/s, ratio to plain, acceptance "
        "length, by requests at once",
        (
            "arm",
            *(
                f"{what} at {load.concurrency}"
                for load in loads
                for what in ("tokens/s", "ratio", "length")
            ),
        ),
        tuple(rows),
    )


def _length_text(parts: Sequence[Acceptance]) -> str:
    whole = sum(parts, Acceptance())
    return f"{whole.length:.2f}" if whole.num_drafting else "-"


def acceptance_figures(
    found: Mapping[tuple[str, float], Acceptance], prefix: str = ""
) -> dict[str, float]:
    """Return the acceptance length of each task and temperature in which drafts were verified."""
    return {
        marked(f"{prefix}acceptance_length@_{task}", temperature): acceptance.length
        for (task, temperature), acceptance in found.items()
        if acceptance.num_drafting
    }


def acceptance_table(
    found: Mapping[tuple[str, float], Acceptance], arm: Arm, concurrency: int
) -> Table:
    """Return acceptance length and the share kept at each position, a row a task."""
    return Table(
        f"{arm.name} at {concurrency} requests: acceptance length, and share of drafts "
        "kept by position where all before were kept",
        ("task", "temperature", "length", *(str(i + 1) for i in range(arm.draft_length))),
        tuple(
            (
                task,
                f"{temperature:g}",
                _length_text([acceptance]),
                *(f"{share:.2f}" for share in acceptance.by_position),
                *["-"] * (arm.draft_length - len(acceptance.by_position)),
            )
            for (task, temperature), acceptance in found.items()
        ),
    )

"""How long a step takes: what was measured at start, read between its points."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from policy.arms import PLAIN, Arm, Ladder
from policy.errors import PolicyError


@dataclass(frozen=True, slots=True)
class CostGrid:
    """Whole steps of one drafter, its drafting included.

    Attributes:
        rows: Requests that decode, ascending.
        widths: Draft tokens of each, ascending; ``(0,)`` for plain.
        contexts: Tokens of each, ascending.
        seconds: Times, by rows, then widths, then contexts.
    """

    rows: tuple[int, ...]
    widths: tuple[int, ...]
    contexts: tuple[int, ...]
    seconds: tuple[tuple[tuple[float, ...], ...], ...]

    def __post_init__(self) -> None:
        for name in ("rows", "widths", "contexts"):
            axis = getattr(self, name)
            if not axis or any(high <= low for low, high in pairwise(axis)):
                raise PolicyError(f"cost table: {name} must ascend, got {axis}; sort them")
        shape = {
            (len(self.seconds), len(plane), len(line)) for plane in self.seconds for line in plane
        }
        wanted = (len(self.rows), len(self.widths), len(self.contexts))
        if shape != {wanted}:
            raise PolicyError(f"cost table: seconds have shape {shape}, but the axes {wanted}")
        if not all(time > 0.0 for plane in self.seconds for line in plane for time in line):
            raise PolicyError("cost table: a step took 0 seconds or less; measure it again")

    def at(self, rows: float, width: float, context: float) -> float:
        """Return the seconds of a step.

        Linear between points and past them; past the last one, never down. Before the first one
        are steps in which only some requests draft, and half of its time is the least.
        """
        places = _place(self.rows, rows), _place(self.contexts, context)
        low, high, share = _place(self.widths, width)
        first = self._column(low, *places)
        # What was measured at this very width, as most are, needs no other.
        return _between(first, self._column(high, *places), share) if share else first

    def line(self, rows: float, context: float) -> tuple[float, ...]:
        """Return the seconds of a step of each measured width."""
        places = _place(self.rows, rows), _place(self.contexts, context)
        return tuple(self._column(column, *places) for column in range(len(self.widths)))

    def _column(
        self, column: int, rows: tuple[int, int, float], contexts: tuple[int, int, float]
    ) -> float:
        """Return the seconds of a step of one measured width."""
        (few, many, share), (short, long, share_of_context) = rows, contexts
        first, second = self.seconds[few][column], self.seconds[many][column]
        return _between(
            _between(first[short], first[long], share_of_context),
            _between(second[short], second[long], share_of_context),
            share,
        )


@dataclass(frozen=True, slots=True)
class CostTable:
    """What every arm costs on this machine.

    Attributes:
        grids: One for each drafter, and one for plain.
        prefill_s: Time that one more token of a prompt adds to a step, seconds.
    """

    grids: Mapping[str, CostGrid]
    prefill_s: float = 0.0

    def __post_init__(self) -> None:
        if PLAIN not in self.grids:
            raise PolicyError(f"cost table: {PLAIN!r} is missing; measure it, it is the yardstick")

    def check_ladder(self, ladder: Ladder) -> None:
        """Check that every arm was measured.

        Raises:
            PolicyError: A drafter is missing, or its widest rung is past what was measured.
        """
        for rungs in ladder.drafters:
            grid = self.grids.get(rungs.drafter)
            if grid is None or grid.widths[-1] < rungs.draft_lengths[-1]:
                raise PolicyError(
                    f"cost table: {rungs.drafter!r} was not measured up to draft length "
                    f"{rungs.draft_lengths[-1]}; it belongs to another model, measure again"
                )

    def is_measured(self, arm: Arm, width: float) -> bool:
        """Return whether a mean draft length is not below what was measured of a drafter."""
        return width >= self.grids[arm.drafter].widths[0]

    def seconds(self, arm: Arm, rows: float, width: float, context: float) -> float:
        """Return the seconds of a step in which nothing is prefilled.

        Args:
            arm: Says which drafter.
            rows: Requests that decode.
            width: Mean draft tokens of each.
            context: Mean tokens of each.
        """
        return self.grids[arm.drafter].at(rows, width, context)

    def priced(self, drafter: str, rows: float, context: float) -> "PriceLine":
        """Return a drafter's steps under one load, to be read at many widths."""
        grid = self.grids[drafter]
        return PriceLine(grid.widths, grid.line(rows, context))


@dataclass(frozen=True, slots=True)
class PriceLine:
    """Whole steps of one drafter under one load.

    Attributes:
        widths: Draft tokens of each request, ascending.
        times: Seconds, by width.
    """

    widths: tuple[int, ...]
    times: tuple[float, ...]

    def at(self, width: float) -> float:
        """Return the seconds of a step, as `CostGrid.at` does."""
        return _read(self.widths, width, self.times)


def rising_grid(
    rows: Sequence[int],
    widths: Sequence[int],
    contexts: Sequence[int],
    medians: Mapping[tuple[int, int, int], float],
) -> CostGrid:
    """Return a grid of measured medians in which more work never takes less time.

    A sparse or noisy profile that makes wide steps look free costs more than speculation gains.

    Args:
        rows: Requests that decode, ascending.
        widths: Draft tokens of each, ascending.
        contexts: Tokens of each, ascending.
        medians: Seconds by (rows, width, context).
    """
    risen: dict[tuple[int, int, int], float] = {}
    for i, row in enumerate(rows):
        for j, width in enumerate(widths):
            for k, context in enumerate(contexts):
                below = [
                    risen[key]
                    for key in (
                        (rows[i - 1], width, context) if i else None,
                        (row, widths[j - 1], context) if j else None,
                        (row, width, contexts[k - 1]) if k else None,
                    )
                    if key is not None
                ]
                risen[row, width, context] = max([medians[row, width, context], *below])
    seconds = tuple(
        tuple(tuple(risen[row, width, context] for context in contexts) for width in widths)
        for row in rows
    )
    return CostGrid(tuple(rows), tuple(widths), tuple(contexts), seconds)


def _place(axis: tuple[int, ...], at: float) -> tuple[int, int, float]:
    """Return the two points beside a place, and how far it is from the first to the second."""
    if len(axis) == 1:
        return 0, 0, 0.0
    high = min(max(1, bisect_right(axis, at)), len(axis) - 1)
    before = axis[high - 1]
    return high - 1, high, (at - before) / (axis[high] - before)


def _read(axis: tuple[int, ...], at: float, line: tuple[float, ...]) -> float:
    low, high, share = _place(axis, at)
    return _between(line[low], line[high], share)


def _between(first: float, second: float, share: float) -> float:
    """Return the line through two points; past the second one it may rise but not fall."""
    if share > 1.0:
        return second + (share - 1.0) * max(0.0, second - first)
    return max(0.5 * first, first + share * (second - first))

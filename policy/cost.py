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
        return _along(
            self.rows,
            rows,
            lambda i: _along(
                self.widths,
                width,
                lambda j: _along_line(self.contexts, context, self.seconds[i][j]),
            ),
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


def _along(axis: tuple[int, ...], at: float, value_of) -> float:
    if len(axis) == 1:
        return value_of(0)
    high = min(max(1, bisect_right(axis, at)), len(axis) - 1)
    low = high - 1
    return _between(axis, at, low, value_of(low), value_of(high))


def _along_line(axis: tuple[int, ...], at: float, line: tuple[float, ...]) -> float:
    return _along(axis, at, line.__getitem__)


def _between(axis: tuple[int, ...], at: float, low: int, first: float, second: float) -> float:
    """Return the line through two points; past the second one it may rise but not fall."""
    share = (at - axis[low]) / (axis[low + 1] - axis[low])
    if share > 1.0:
        return second + (share - 1.0) * max(0.0, second - first)
    return max(0.5 * first, first + share * (second - first))

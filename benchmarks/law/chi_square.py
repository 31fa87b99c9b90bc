"""How far counted draws lie from their law."""

import numpy as np
import torch
from numpy.typing import NDArray

_LEAST_EXPECTED = 10.0
_MOST_CELLS = 48


def chi_square_p(seen: NDArray[np.int64], law: NDArray[np.float64]) -> float:
    """Return the probability that a true law gives draws at least as far off as these.

    Ids are joined, most likely first, into cells that expect ten draws or more, so that the
    statistic's own law holds on any vocabulary; into 48 at most, as a drift over many small cells
    is harder to see. A draw of an impossible id gives 0.

    Shapes:
        seen: ``[vocab]``, how often each id was drawn.
        law: ``[vocab]``, sums to 1.

    Source:
        Pearson, "On the criterion that a given system of deviations ...", 1900.
    """
    if seen[law == 0.0].any():
        return 0.0
    cell = _cells(seen.sum() * law)
    expected = np.bincount(cell, weights=seen.sum() * law)
    counted = np.bincount(cell, weights=seen)
    statistic = float(((counted - expected) ** 2 / expected).sum())
    degrees = expected.size - 1
    if degrees == 0:
        return 1.0
    halves = torch.tensor([degrees / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(halves[0], halves[1]))


def _cells(expected: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the cell of each id; each cell expects at least about half of what is aimed at."""
    aim = max(_LEAST_EXPECTED, expected.sum() / _MOST_CELLS)
    order = np.argsort(-expected, kind="stable")
    last = max(int(expected.sum() / aim) - 1, 0)
    places = np.minimum(np.cumsum(expected[order]) // aim, last)
    cell = np.empty(expected.size, dtype=np.int64)
    cell[order] = np.unique(places, return_inverse=True)[1]
    return cell

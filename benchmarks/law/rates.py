"""How often one draft token is kept at one row: exact expectations under three rules."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.law.laws import Law


@dataclass(frozen=True, slots=True)
class Rates:
    """Chances that a draft token is kept, of one row or on average.

    Attributes:
        shared_noise: Drafter and target draw with the same noise; kept where they agree.
        ratio_test: The drafter draws from its law q; kept with chance ``min(1, p / q)``.
        point_mass: The drafter takes its likeliest id; kept with that id's chance under p.
    """

    shared_noise: float
    ratio_test: float
    point_mass: float


def rates_at(target: Law, candidates: NDArray[np.int64], drafter: Law) -> Rates:
    """Return the three chances at one row, over all noise.

    With shared Gumbel noise both draw id i exactly where i beats every other id by the larger of
    the two laws' handicaps, which happens with chance ``1 / sum_j max(p_j / p_i, q_j / q_i)``.

    Args:
        target: The target's processed law p.
        candidates: Ids that the drafter chooses from.
        drafter: Its law q over those.

    Shapes:
        target: ``[vocab]``.
        candidates, drafter: ``[candidates]``.

    Source:
        The two other rules: arXiv:2302.01318, algorithm 2, with q and with a one-hot q.
    """
    p = target[candidates]
    elsewhere = max(1.0 - float(p.sum()), 0.0)
    both = (p > 0.0) & (drafter > 0.0)
    shared = 0.0
    for p_i, q_i in zip(p[both], drafter[both], strict=True):
        shared += 1.0 / (float(np.maximum(p / p_i, drafter / q_i).sum()) + elsewhere / p_i)
    return Rates(
        shared_noise=shared,
        ratio_test=float(np.minimum(p, drafter).sum()),
        point_mass=float(p[np.argmax(drafter)]),
    )


def mean_of(rates: list[Rates]) -> Rates:
    """Return the average of each chance over the rows, at least one."""
    count = len(rates)
    return Rates(
        shared_noise=sum(each.shared_noise for each in rates) / count,
        ratio_test=sum(each.ratio_test for each in rates) / count,
        point_mass=sum(each.point_mass for each in rates) / count,
    )

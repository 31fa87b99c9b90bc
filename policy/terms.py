"""What stays the same from one decision to the next, until an operator or a profile changes it."""

from dataclasses import dataclass, field

from policy.arms import Ladder
from policy.cost import CostTable
from policy.limits import Limits


@dataclass(frozen=True, slots=True)
class Terms:
    """Bounds, drafters and step times of one replica.

    A reload replaces them whole between two decisions; what was learnt is in the decision's state
    and stays.

    Raises:
        PolicyError: They contradict each other.
    """

    ladder: Ladder
    costs: CostTable
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.limits.check_ladder(self.ladder)
        self.costs.check_ladder(self.ladder)

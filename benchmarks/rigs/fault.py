"""Seven faults of serving engines, and the dice that say when one strikes."""

import random
from enum import StrEnum


class Fault(StrEnum):
    """What goes wrong in a turn. Public reports of wrong answers trace back to faults like these.

    ``kv_swapped``: two sequences read and write each other's pages for one step. ``page_stale``:
    a page keeps what it held before the step wrote it. ``count_of_another``: a sequence keeps as
    many drafts as another did. ``rejected_visible``: what a rejected draft left in a slot outlives
    the token that should have replaced it. ``position_off_by_one``: a run is computed one position
    too early. ``all_accepted``: every draft is kept, whatever the target chose. ``key_drift``: new
    keys are off by one unit in the last place.
    """

    KV_SWAPPED = "kv_swapped"
    PAGE_STALE = "page_stale"
    COUNT_OF_ANOTHER = "count_of_another"
    REJECTED_VISIBLE = "rejected_visible"
    POSITION_OFF_BY_ONE = "position_off_by_one"
    ALL_ACCEPTED = "all_accepted"
    KEY_DRIFT = "key_drift"


class Dice:
    """Decide, turn by turn and reproducibly, where a fault strikes.

    Attributes:
        num_struck: Turns that were made wrong.
    """

    def __init__(self, chance: float, seed: int) -> None:
        """Prepare to strike.

        Args:
            chance: That a turn is struck, in [0, 1].
            seed: Of the dice.
        """
        self.num_struck = 0
        self.random = random.Random(seed)
        self._chance = chance

    def strikes(self) -> bool:
        """Whether the next turn is to be made wrong."""
        return self.random.random() < self._chance

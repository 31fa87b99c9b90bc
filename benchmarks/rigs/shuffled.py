"""A scheduler whose rows come in another order each step: no answer may depend on a row's place."""

import random
from dataclasses import replace

from dflash.config import EngineLimits
from dflash.grants import Grants
from dflash.kv_cache import KVCache
from dflash.plan import DraftPlan
from dflash.schedule import Schedule
from dflash.scheduler import Scheduler


class ShuffledScheduler(Scheduler):
    """Schedules as its base does, then shuffles the turns.

    Attributes:
        last: The schedule given last, for those who audit the step.
    """

    def __init__(
        self, kv_cache: KVCache, limits: EngineLimits, seed: int, grants: Grants | None = None
    ) -> None:
        super().__init__(kv_cache, limits, grants)
        self._random = random.Random(seed)
        self.last: Schedule | None = None

    def schedule(self, plan: DraftPlan) -> Schedule:
        """Return the base's schedule in random order."""
        schedule = super().schedule(plan)
        turns = self._random.sample(schedule.turns, len(schedule.turns))
        self.last = replace(schedule, turns=tuple(turns))
        return self.last

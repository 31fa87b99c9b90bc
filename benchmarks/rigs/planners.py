"""Planners that never keep to a plan: no decision about drafts may change what is emitted."""

import random
from itertools import cycle

from dflash.plan import ContextMode, DraftPlan, PlanSignals

_MOST_GRADED = 4


class RandomPlanner:
    """A draft length of its own for each request, drawn anew in every step; always warm."""

    def __init__(self, max_draft_length: int, seed: int) -> None:
        self._max_draft_length = max_draft_length
        self._random = random.Random(seed)

    def plan(self, signals: PlanSignals) -> DraftPlan:
        """Return the plan of this step."""
        draw = self._random
        return DraftPlan(
            draft_length=draw.randint(0, self._max_draft_length),
            by_request={
                request_id: draw.randint(0, self._max_draft_length)
                for request_id in signals.decoding
            },
            context=ContextMode.WARM,
            num_graded=draw.randint(0, _MOST_GRADED),
        )


class TogglingPlanner:
    """Another mode in every step: draft, keep the context warm, let it go cold, and again."""

    def __init__(self, draft_length: int) -> None:
        drafting = DraftPlan(draft_length, context=ContextMode.WARM, num_graded=_MOST_GRADED)
        warm, cold = DraftPlan(context=ContextMode.WARM), DraftPlan()
        # The warm step after a cold one catches up, so that the one after it can draft.
        self._plans = cycle((drafting, warm, drafting, cold, warm))

    def plan(self, signals: PlanSignals) -> DraftPlan:
        """Return the plan of this step."""
        return next(self._plans)


class RandomModes:
    """Another mode at random in every step, other lengths at random in those that draft."""

    def __init__(self, max_draft_length: int, seed: int) -> None:
        self._lengths = RandomPlanner(max_draft_length, seed)
        self._full_width = DraftPlan(max_draft_length, context=ContextMode.WARM)
        self._random = random.Random(seed)

    def plan(self, signals: PlanSignals) -> DraftPlan:
        """Return the plan of this step."""
        mode = self._random.choices(("cold", "warm", "full", "lengths"), (1, 1, 3, 5))[0]
        if mode == "lengths":
            return self._lengths.plan(signals)
        if mode == "full":
            return self._full_width
        return DraftPlan(context=ContextMode(mode))

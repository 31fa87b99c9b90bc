"""Planners that never keep to a plan: no decision about drafts may change what is emitted."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle

from dflash.drafters.base import Drafter
from dflash.plan import PLAIN, Arm, DraftPlan, Planner, PlanSignals, Release

# Most draft tokens of one pass, by drafter.
Reach = Mapping[str, int]

_MOST_GRADED = 4
_CHANGE_CHANCE = 0.25


def reach_of(drafters: Iterable[Drafter]) -> Reach:
    """Return how far each of these drafts in one pass."""
    facts = (drafter.facts for drafter in drafters)
    return {each.name: each.max_draft_length for each in facts}


def full_width(drafter: str, reach: Reach) -> DraftPlan:
    """Return a plan that drafts with one, as far as it reaches, and keeps all of them warm."""
    return DraftPlan(Arm(drafter, reach[drafter]), warm=frozenset(reach))


class RandomPlanner:
    """An arm of its own for each request, drawn anew in every step; every drafter is warm."""

    def __init__(self, reach: Reach, seed: int) -> None:
        self._reach = reach
        self._random = random.Random(seed)

    def plan(self, signals: PlanSignals) -> DraftPlan:
        """Return the plan of this step."""
        return random_arms(self._random, self._reach, signals)


class TogglingPlanner:
    """Another mode in every step: draft, keep contexts warm, let them go cold, and the next one."""

    def __init__(self, reach: Reach) -> None:
        warm, cold = DraftPlan(warm=frozenset(reach)), DraftPlan()
        plans: list[DraftPlan] = []
        for name, length in reach.items():
            drafting = DraftPlan(Arm(name, length), warm=warm.warm, num_graded=_MOST_GRADED)
            # The warm step after a cold one catches up, so that the one after it can draft.
            plans += (drafting, warm, drafting, cold, warm)
        self._plans = cycle(plans)

    def plan(self, signals: PlanSignals) -> DraftPlan:
        """Return the plan of this step."""
        return next(self._plans)


class RandomModes:
    """Other drafters warm every few steps; one of them drafts for all, or each for some.

    Now and then none is warm, and memory of some is given back.
    """

    def __init__(self, reach: Reach, seed: int) -> None:
        self._reach = self._warm = reach
        self._random = random.Random(seed)

    def plan(self, signals: PlanSignals) -> DraftPlan:
        """Return the plan of this step."""
        draw = self._random
        if draw.random() < _CHANGE_CHANCE:
            names = draw.sample(sorted(self._reach), draw.randint(1, len(self._reach)))
            self._warm = {name: self._reach[name] for name in names}
        warm = self._warm
        match draw.choices(("cold", "warm", "full", "arms"), (1, 1, 3, 5))[0]:
            case "cold":
                # Seldom: for a while after it nothing is drafted, since contexts catch up.
                most = len(self._reach) if draw.random() < _CHANGE_CHANCE else 0
                names = draw.sample(sorted(self._reach), draw.randint(0, most))
                return DraftPlan(released={name: draw.choice(tuple(Release)) for name in names})
            case "warm":
                return DraftPlan(warm=frozenset(warm))
            case "full":
                plan = full_width(draw.choice(sorted(warm)), warm)
                is_change = draw.random() < _CHANGE_CHANCE
                return replace(plan, taking_over=_any_arm(draw, warm)) if is_change else plan
            case _:
                return random_arms(draw, warm, signals)


class Alternating:
    """Several planners; another one has its say every few steps."""

    def __init__(self, planners: Sequence[Planner], seed: int) -> None:
        self._planners, self._asked = planners, planners[0]
        self._random = random.Random(seed)

    def plan(self, signals: PlanSignals) -> DraftPlan:
        """Return the plan of this step."""
        if self._random.random() < _CHANGE_CHANCE:
            self._asked = self._random.choice(self._planners)
        return self._asked.plan(signals)


def random_arms(draw: random.Random, reach: Reach, signals: PlanSignals) -> DraftPlan:
    """Return a plan in which each request has an arm of its own, of drafters that are warm."""
    return DraftPlan(
        arm=_any_arm(draw, reach),
        by_request={each.request_id: _any_arm(draw, reach) for each in signals.decoding},
        warm=frozenset(reach),
        num_graded=draw.randint(0, _MOST_GRADED),
    )


def _any_arm(draw: random.Random, reach: Reach) -> Arm:
    name = draw.choice(sorted(reach))
    length = draw.randint(0, reach[name])
    return Arm(name, length) if length else PLAIN

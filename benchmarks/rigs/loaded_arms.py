"""Drafters with weights as arms: random ones of every registered kind, and those loaded."""

from collections.abc import Callable, Sequence
from functools import cache, partial

from benchmarks.rigs.draft_arms import (
    DraftArm,
    full_width_of_first,
    live_policy,
    random_modes,
    random_widths,
    toggled,
)
from benchmarks.rigs.registered_drafters import REGISTERED, made_up
from dflash.drafters.base import Drafter
from dflash.load import LoadedModels


def loaded_arms(models: LoadedModels) -> list[DraftArm]:
    """Return arms of every registered drafter with random weights, and of those that are loaded.

    Each drafts alone; then all of them at once, switched at random in every step and within the
    batch.
    """

    @cache
    def random(name: str) -> Drafter:
        return made_up(models.target, name)

    planners = (random_widths, toggled)
    arms = [
        DraftArm(f"{name}, random weights", ("drafted",), lambda name=name: [random(name)], planner)
        for name, planner in zip(REGISTERED, (*planners, *planners), strict=False)
    ]
    arms += _switched("random weights", lambda: [random(name) for name in REGISTERED], "drafted")
    for each in models.drafters:
        name = each.facts.name
        alone = partial(list, [each])
        arms += [
            DraftArm(f"{name}, full width", ("accepted",), alone, full_width_of_first),
            DraftArm(f"{name}, toggled", ("accepted", "catch_up"), alone, toggled),
        ]
    if len(models.drafters) > 1:
        arms += _switched("loaded", lambda: models.drafters, "accepted")
    return arms


def _switched(what: str, drafters: Callable[[], Sequence[Drafter]], event: str) -> list[DraftArm]:
    """Return arms in which requests change drafters at any step."""
    events = tuple(f"{event}_by_{drafter.facts.name}" for drafter in drafters())
    return [
        DraftArm(f"{what}, mixed in each batch", events, drafters, random_widths),
        DraftArm(f"{what}, switched", (*events, "catch_up"), drafters, random_modes),
        DraftArm(f"{what}, live policy", events, drafters, live_policy, visits=2),
    ]

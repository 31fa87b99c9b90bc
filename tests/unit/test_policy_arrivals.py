"""What is chosen for requests that come while nothing runs, and for drafters nobody has tried."""

from dataclasses import replace

import pytest

from policy.arms import PLAIN, Arm, Ladder, Rungs
from policy.cost import CostGrid, CostTable
from policy.decision import Residency
from policy.limits import Limits
from policy.reasons import Reason
from policy.signals import Signals
from policy.survival import Survival
from policy.terms import Terms
from tests.rigs.policy_world import World, terms

GOOD = {"dflash2": 0.9, "mtp": 0.8}


def test_what_comes_while_nothing_decodes_is_decided_for_at_once():
    few, many = (
        World(terms(), {}).decide(Signals(9.0, num_waiting=n, num_admissible=64)) for n in (1, 64)
    )
    assert (few.plan.arm, few.reason) == (Arm("dflash2", 7), Reason.FASTER)
    assert few.plan.residency["dflash2"] is Residency.WARM
    assert many.plan.arm.draft_length < few.plan.arm.draft_length


def test_the_operators_threshold_holds_for_what_is_to_come():
    bound = terms(Limits({"dflash2": 4, "mtp": 4}))
    signals = Signals(9.0, num_waiting=9, num_admissible=9)
    assert World(bound, {}).decide(signals).plan.arm.is_plain


def test_idle_time_makes_nothing_due_for_a_trial():
    here = World(terms(), dict(GOOD))
    here.run(20.0, rows=4)
    age_s = here.now_s - here.decision.state.clocks["mtp"].seen_s
    here.run(600.0, rows=0)
    assert here.now_s - here.decision.state.clocks["mtp"].seen_s == pytest.approx(age_s)


def entered(worths: tuple[float, float, float], num_grades: int) -> Arm:
    """Return what is run first where MTP drafts of 1 to 3 tokens look worth so much."""
    rungs, chance = Rungs("mtp", (1, 2, 3)), 0.7
    tokens = [sum(chance**place for place in range(width + 1)) for width in (1, 2, 3)]
    times = tuple((0.01 * n / worth,) for n, worth in zip(tokens, worths, strict=True))
    grids = {
        PLAIN: CostGrid((1,), (0,), (0,), (((0.01,),),)),
        "mtp": CostGrid((1,), (1, 2, 3), (0,), (times,)),
    }
    here = World(Terms(Ladder((rungs,)), CostTable(grids)), {})
    known = Survival((num_grades,) * 3, (num_grades * chance,) * 3)
    here.decision = replace(
        here.decision, state=replace(here.decision.state, survivals={"mtp": known})
    )
    return here.decide(Signals(9.0, num_waiting=1, num_admissible=1)).plan.arm


def test_of_widths_that_may_be_the_best_the_widest_shows_which_is():
    assert entered((1.50, 1.49, 1.48), num_grades=4) == Arm("mtp", 3)
    assert entered((1.50, 1.49, 1.30), num_grades=4) == Arm("mtp", 2)
    for nothing_or_all in (0, 10**6):
        assert entered((1.50, 1.47, 1.46), num_grades=nothing_or_all) == Arm("mtp", 1)

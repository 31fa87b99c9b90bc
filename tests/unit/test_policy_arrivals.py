"""What is chosen for requests that come while nothing runs, and for drafters nobody has tried."""

from dataclasses import replace

import pytest

from policy.arms import PLAIN, Arm, Ladder, Rungs
from policy.controller import decide
from policy.cost import CostGrid, CostTable
from policy.decision import Plan, Residency
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


def test_a_gap_that_is_longer_than_any_step_earns_no_time_for_trials():
    here = World(terms(), {})
    before = here.decision.state.ledger.amount
    after = here.decide(Signals(100.0, num_decoding=1)).state.ledger.amount
    assert after - before == pytest.approx(2.0 * here.terms.limits.exploration_share)


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


@pytest.mark.parametrize("chance", [0.5, 0.7], ids=["to longer steps", "to shorter steps"])
def test_a_drafter_that_nobody_tried_is_begun_by_its_mean_where_that_costs_no_context(chance):
    """It is expected to be worth 1.2 and at least 1.09; what runs is surely worth 1.1."""
    times = {PLAIN: 0.01, "dflash2": 0.01 * (1 + chance) / 1.1, "mtp": 0.01 * 1.7 / 1.2}
    grids = {
        name: CostGrid((1,), (int(name != PLAIN),), (0,), (((seconds,),),))
        for name, seconds in times.items()
    }
    ladder = Ladder((Rungs("dflash2", (1,)), Rungs("mtp", (1,))))
    here = World(Terms(ladder, CostTable(grids)), {})
    state = replace(
        here.decision.state,
        survivals={"dflash2": Survival((10**6,), (chance * 10**6,))},
        confirming="mtp",
        num_rows=1,
    )
    held = replace(here.decision, plan=Plan(Arm("dflash2", 1)), state=state)
    first = decide(held, Signals(9.0, num_waiting=1, num_admissible=1), here.terms)
    later = decide(held, Signals(9.0, num_decoding=1), here.terms)
    assert first.plan.arm == Arm("mtp", 1)
    assert later.state.home_of(later.plan.arm) == Arm("dflash2", 1)

"""A context that costs more than it brings is not caught up: a drafter begins with newcomers."""

from copy import copy, deepcopy
from dataclasses import replace
from functools import cache

import pytest

from policy.arms import PLAIN_ARM, Arm
from policy.budget import Purse
from policy.decision import Decision, Residency
from policy.goodput import Worth
from policy.header import VERSION, FileKind, Header
from policy.json_form import as_json
from policy.limits import Limits
from policy.log import entry_of
from policy.pins import Pin
from policy.reasons import Reason
from policy.recording import Start, recorded, replay
from policy.signals import DrafterCondition, Signals
from policy.survival import Survival
from policy.takeover import pays
from tests.rigs.policy_world import LADDER, World, shares, spiked, terms

DEAR = {name: DrafterCondition(catch_up_s=30.0) for name in LADDER.names}
CHEAP = {name: DrafterCondition(catch_up_s=0.01) for name in LADDER.names}
GOOD = {"dflash2": 0.9, "mtp": 0.5}


@pytest.mark.parametrize(
    ("value", "catch_up_s", "expected"),
    [(1.04, 0.3, True), (1.04, 0.5, False), (1.06, 30.0, True)],
    ids=["at once", "for too little", "request by request"],
)
# What is below plain is left for plain decoding: no more than that is gained by leaving it.
@pytest.mark.parametrize("other", [1.0, 0.5])
def test_a_change_must_bring_its_price_or_enough_for_two_drafters_in_a_step(
    other, value, catch_up_s, expected
):
    worth = Worth(Arm("mtp", 1), value, value, 0.01)
    condition = {"mtp": DrafterCondition(catch_up_s=catch_up_s)}
    assert pays(worth, other, Signals(0.0, drafters=condition)) is expected


@cache
def changed() -> World:
    here = World(terms(), {"dflash2": 0.0, "mtp": 0.8})
    here.run(60.0, rows=4)
    assert here.decision.plan.arm.drafter == "mtp"
    here.chances.update(dflash2=0.97)
    while here.decision.state.home_of(here.decision.plan.arm).drafter == "mtp":
        here.run(0.1, rows=4, drafters=DEAR)
        assert here.now_s < 600.0
    return here


def changing() -> World:
    """Return a world in which the better drafter has just begun with newcomers, from the lighter.

    The lighter one is worth more than plain, so those that run go on with it.
    """
    here = copy(changed())
    here.draw, here.chances = deepcopy(here.draw), dict(here.chances)
    here.signals, here.decisions = [*here.signals], [*here.decisions]
    return here


def test_newcomers_get_the_better_drafter_and_the_others_keep_theirs():
    plan = changing().decision.plan
    assert (plan.arm.drafter, plan.taking_over) == ("dflash2", Arm("mtp", 5))
    assert plan.residency == {"dflash2": Residency.WARM, "mtp": Residency.WARM}


def test_from_plain_decoding_it_begins_with_those_that_come():
    here = World(terms(), dict(GOOD))
    made = here.run(1.0, rows=4, drafters=DEAR)
    assert made[-1].plan.arm.drafter == "dflash2"
    assert made[-1].plan.taking_over == PLAIN_ARM
    assert made[-1].plan.residency["mtp"] is Residency.COLD


def test_the_last_few_are_caught_up_with_as_soon_as_that_pays():
    here = changing()
    plan = here.run(0.01, rows=4, drafters=CHEAP)[0].plan
    assert (plan.arm.drafter, plan.taking_over) == ("dflash2", None)
    assert plan.residency["mtp"] is Residency.COLD


def test_it_is_over_as_soon_as_nobody_is_left_whom_it_does_not_follow():
    here = changing()
    # Believed to be worse by now, so that no price would be paid for it.
    poor = {"dflash2": Survival().plus((100,) * 7, (0,) * 7)}
    state = here.decision.state
    here.decision = replace(
        here.decision, state=replace(state, survivals={**state.survivals, **poor})
    )
    assert here.run(0.01, rows=4, drafters=DEAR)[0].plan.taking_over == Arm("mtp", 5)
    plan = here.run(0.01, rows=4)[0].plan
    assert (plan.arm.drafter, plan.taking_over) == ("dflash2", None)


def test_a_pin_is_for_everybody():
    here = changing()
    pin = Pin(here.decision.plan.arm, ("*",), "ada", "a comparison", here.now_s + 9.0)
    plan = here.run(0.01, rows=4, drafters=DEAR, pin=pin)[0].plan
    assert (plan.arm, plan.taking_over) == (pin.arm, None)
    assert plan.residency["mtp"] is Residency.COLD


@pytest.mark.parametrize(
    ("limits", "expected"),
    [(Limits({"mtp": 3}), PLAIN_ARM), (Limits(max_draft_length=3), Arm("mtp", 3))],
    ids=["its drafter", "its length"],
)
def test_what_is_forbidden_meanwhile_goes_on_with_what_is_left_of_it(limits, expected):
    here = changing()
    here.terms = replace(here.terms, limits=limits)
    assert here.run(0.01, rows=4, drafters=DEAR)[0].plan.taking_over == expected


def test_what_is_below_plain_meanwhile_goes_on_plainly():
    here = changing()
    poor = {"mtp": Survival().plus((400,) * 5, (0,) * 5)}
    state = here.decision.state
    here.decision = replace(
        here.decision, state=replace(state, survivals={**state.survivals, **poor})
    )
    assert here.run(0.01, rows=4, drafters=DEAR)[0].plan.taking_over == PLAIN_ARM


def test_that_it_is_over_is_a_change_and_logged():
    here = changing()
    last = here.run(0.5, rows=4, drafters=DEAR)[-1]
    over = here.run(0.01, rows=4, drafters=CHEAP)[0]
    same = replace(over, plan=replace(over.plan, arm=last.plan.arm), reason=last.reason)
    entry = entry_of(last, same, here.signals[-1])
    assert entry is not None
    assert entry.taking_over is None


def test_a_record_of_one_is_replayed_to_the_same_decisions():
    here = changing()
    start = Start(here.terms, here.decision)
    here.signals, here.decisions = [], []
    here.run(5.0, rows=4, drafters=DEAR)
    here.run(5.0, rows=4, drafters=CHEAP)
    made = zip(here.signals, here.decisions, strict=True)
    values = [start, *(recorded(*each) for each in made)]
    header = Header(FileKind.SIGNALS, VERSION, "a", 0.0).line()
    again = list(replay([header, *map(as_json, values)]))
    assert [each.decision for each in again] == here.decisions
    assert sum(each.decision.plan.taking_over is not None for each in again) > 9


def test_nothing_is_tried_meanwhile_but_not_for_good():
    here = changing()
    full = replace(here.decision.state, ledger=Purse(0.4, 0.4, here.now_s))
    here.decision = replace(here.decision, state=full)
    first = here.run(50.0, rows=4, drafters=DEAR)
    assert shares(first) == {"dflash2": 1.0}
    assert Reason.PROBE not in {decision.reason for decision in first}
    assert Reason.PROBE in {d.reason for d in here.run(60.0, rows=4, drafters=DEAR)}


def test_the_time_of_a_step_with_two_drafters_teaches_nothing():
    here = changing()

    def after(**changes) -> Decision:
        last = here.signals[-1]
        # All drafted in each: the time of a step in which only some do is not of any arm.
        whole = [replace(step, num_draft_tokens=4 * step.arm.draft_length) for step in last.steps]
        steps = tuple(replace(step, **changes) for step in whole)
        before = replace(here.decision, state=replace(here.decision.state, num_settled=9))
        here.decision = before
        return here.decide(replace(spiked(last, 0, 1.3), steps=steps, now_s=here.now_s + 0.1))

    known = here.decision.state.corrections
    assert after(is_mixed=True).state.corrections == known
    assert after(is_mixed=False).state.corrections != known

"""The switching benchmark's chains: who is met cold, who warm, and what is counted as waiting."""

from dataclasses import replace

import pytest

from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.script_drafter import SCRIPTED, ScriptDrafter, failing
from benchmarks.rigs.served import StepFailedError
from benchmarks.switching import Ride, Switch, legs
from dflash.config import EngineLimits
from dflash.engine import Engine
from dflash.plan import NO_DRAFTER, Arm, DraftPlan

ONE, OTHER = Arm("one", 7), Arm("other", 2)
PROMPTS = [[*range(1, 60), index] for index in range(3)]


def ride(budget: int, script=lambda row, right: (1,) * row.num_drafts) -> Ride:
    model = HashLM()
    drafters = [
        ScriptDrafter(model.facts, lambda row: (), script, facts=replace(SCRIPTED, name=name))
        for name in ("one", "other")
    ]
    limits = EngineLimits(max_num_seqs=3, max_num_batched_tokens=budget)
    return Ride(Engine(model, limits, drafters=drafters, prefix_caching=False), PROMPTS)


def test_a_chain_meets_each_drafter_cold_and_both_warm():
    chain = list(legs(ONE, OTHER))
    met = [(leg.plan.arm.drafter, leg.state) for leg in chain if leg.state]
    assert met == [
        ("one", "cold since the prompt"),
        ("other", "cold since the prompt"),
        ("one", "cold for some steps"),
        ("other", "warm"),
        ("one", "warm"),
    ]
    warm = [leg.plan for leg in chain if leg.state == "warm"]
    assert all(plan.warm == {"one", "other"} for plan in warm)
    assert chain[-1].plan.arm.drafter == NO_DRAFTER


def test_a_cold_drafter_is_waited_for_once_and_a_warm_one_not_at_all():
    served = ride(budget=512)
    waited = {}
    for leg in legs(ONE, OTHER):
        waited.setdefault(leg.state, []).append(served.switched(leg.plan)[0])
    assert waited["cold since the prompt"] == [1, 1]
    assert waited["cold for some steps"] == [1]
    assert waited["warm"] == [0, 0]


def test_a_context_longer_than_a_step_is_waited_for_in_parts():
    served = ride(budget=32)
    num_steps, _ = served.switched(DraftPlan(ONE, warm=frozenset({"one"})))
    assert num_steps > 5
    assert served.switched(DraftPlan())[0] == 0


def test_a_ride_whose_drafter_fails_is_no_sample():
    served = ride(budget=512, script=failing)
    with pytest.raises(StepFailedError, match="the script says fail"):
        served.switched(DraftPlan(ONE, warm=frozenset({"one"})))


def test_a_switch_is_priced_in_plain_steps_of_its_load():
    switch = Switch(128, 8, "one", "other", "warm", 0, cost_s=0.05, plain_step_s=0.02)
    assert switch.cost_steps == pytest.approx(2.5)

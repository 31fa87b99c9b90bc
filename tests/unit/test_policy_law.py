"""What the law does in worlds in which the right answer is known."""

from dataclasses import replace

import pytest

from policy.arms import PLAIN, Arm, Ladder, Rungs
from policy.decision import Plan, Residency
from policy.errors import PolicyError
from policy.governor import Release
from policy.limits import Limits, MemoryLimits
from policy.pins import Pin
from policy.readings import MemoryReading
from policy.reasons import Reason
from policy.signals import DrafterCondition, PoolSignal, RequestSignal
from tests.rigs.policy_world import LADDER, World, drafters_of, shares, step_s, terms

GOOD = {"dflash2": 0.9, "mtp": 0.8}
WEAK = {"dflash2": 0.45, "mtp": 0.3}
NO_MEMORY = MemoryReading(1000, 1, None)
ONE_DRAFTER = Ladder((Rungs("dflash2", (1, 3, 5, 7)),))


def world(chances=GOOD, limits=None, ladder=LADDER, **options) -> World:
    return World(terms(limits, ladder), dict(chances), **options)


def test_a_lone_request_gets_the_widest_drafts_of_the_best_drafter():
    settled = world().run(60.0, rows=1)[-300:]
    assert shares(settled)["dflash2"] == 1.0
    arms = [decision.plan.arm for decision in settled]
    assert arms.count(Arm("dflash2", 7)) > 0.95 * len(arms)


def test_weak_drafts_at_high_load_are_not_verified_at_all():
    settled = world(WEAK).run(120.0, rows=64)[-300:]
    assert shares(settled)[PLAIN] == 1.0


def test_between_the_two_a_narrower_draft_wins():
    settled = world(ladder=ONE_DRAFTER).run(60.0, rows=32)[-300:]
    arms = [decision.plan.arm for decision in settled]
    assert max(set(arms), key=arms.count) == Arm("dflash2", 3)


def test_a_load_spike_is_answered_before_the_dwell_is_over():
    here = world(WEAK, Limits(dwell_s=60.0), ONE_DRAFTER)
    here.run(3.0, rows=1)
    assert not here.decision.plan.arm.is_plain
    first = here.run(0.01, rows=64)[0]
    assert first.plan.arm.is_plain
    assert first.reason is Reason.LOAD_SPIKE


def test_one_better_look_does_not_change_the_drafter():
    here = world()
    first, second = here.run(0.01, rows=1)[0], here.run(0.01, rows=1)[0]
    assert (first.plan.arm.is_plain, first.reason) == (True, Reason.CONFIRMING)
    assert not second.plan.arm.is_plain


def test_the_operators_threshold_holds_whatever_goodput_promises():
    here = world(limits=Limits({"dflash2": 4, "mtp": 8}))
    here.run(20.0, rows=4)
    assert drafters_of([here.decision]) == ["dflash2"]
    above = here.run(20.0, rows=5)
    assert "dflash2" not in drafters_of(above)
    assert shares(above[50:])["mtp"] == 1.0
    assert {decision.plan.arm.drafter for decision in above} <= {"mtp", PLAIN}
    assert any(block.reason is Reason.CONCURRENCY_LIMIT for block in above[-1].blocked)
    further = here.run(20.0, rows=9)
    assert {decision.plan.arm for decision in further} == {Arm()}
    assert further[0].reason is Reason.CONCURRENCY_LIMIT


def test_the_operators_threshold_is_left_below_where_it_was_met():
    here = world(limits=Limits({"dflash2": 10}), ladder=ONE_DRAFTER)
    here.run(5.0, rows=11)
    assert set(drafters_of(here.run(10.0, rows=9))) == {PLAIN}
    assert drafters_of(here.run(10.0, rows=8))[-1] == "dflash2"


def test_a_drafter_that_collapses_is_left_and_one_that_heals_comes_back():
    here = world(ladder=ONE_DRAFTER)
    here.run(20.0, rows=8)
    here.chances["dflash2"] = 0.02
    broken = here.run(60.0, rows=8)
    assert drafters_of(broken)[-1] == PLAIN
    assert here.decision.state.breaker_of("dflash2").is_open
    here.chances["dflash2"] = 0.9
    healed = here.run(120.0, rows=8)
    assert drafters_of(healed)[-1] == "dflash2"
    assert not here.decision.state.breaker_of("dflash2").is_open


def test_a_drafter_that_raises_is_left_at_once():
    here = world(ladder=ONE_DRAFTER)
    signals = replace(here_signals(here), now_s=here.now_s)
    faulty = tuple(
        replace(step, has_drafter_fault=True, graded=(), accepted=()) for step in signals.steps
    )
    decision = here.decide(replace(signals, steps=faulty))
    assert decision.plan.arm.is_plain
    assert decision.reason is Reason.DRAFTER_UNHEALTHY


def here_signals(here: World):
    here.run(5.0, rows=4)
    assert not here.decision.plan.arm.is_plain
    return here.signals[-1]


def test_a_wrong_table_is_found_out_and_reported():
    here = world(ladder=ONE_DRAFTER, slowness={"dflash2": 1.5})
    here.chances["dflash2"] = 0.45
    settled = here.run(60.0, rows=8)[-200:]
    # By the table it would gain; at what it really costs it loses, and so it is only probed.
    assert shares(settled)[PLAIN] > 0.9
    assert "dflash2@8" in {drift.where for drift in here.decision.state.corrections.drifts()}


def test_a_request_that_opted_out_is_left_alone_and_the_others_are_not():
    requests = tuple(RequestSignal(str(i), 0 if i == 0 else None) for i in range(4))
    made = world().run(10.0, rows=4, requests=requests)
    assert drafters_of(made)[-1] == "dflash2"
    assert made[-1].plan.by_request == {"0": 0}


def test_when_all_opted_out_nothing_is_drafted_and_nothing_probed():
    requests = tuple(RequestSignal(str(i), ceiling=0) for i in range(4))
    made = world().run(30.0, rows=4, requests=requests)
    assert {decision.plan.arm for decision in made} == {Arm()}


def test_a_pin_overrides_the_law_until_it_expires():
    here = world()
    here.run(10.0, rows=1)
    pin = Pin(Arm("mtp", 2), ("*",), "ops", "comparing", here.now_s + 100.0)
    pinned = here.run(20.0, rows=1, pin=pin)
    assert {decision.plan.arm for decision in pinned} == {Arm("mtp", 2)}
    assert {decision.reason for decision in pinned} == {Reason.PINNED}
    assert drafters_of(here.run(30.0, rows=1))[-1] == "dflash2"


def test_a_pin_to_plain_may_give_the_drafters_weights_back_and_one_that_drafts_may_not():
    here = world()
    here.run(8.0, rows=1)
    pin = Pin(Arm(), ("*",), "ops", "a baseline", here.now_s + 100.0, release_drafter=True)
    kept = here.run(1.0, rows=1, pin=pin)[-1].plan
    assert kept.arm.is_plain
    assert set(kept.residency.values()) == {Residency.NO_WEIGHTS}
    assert Residency.NO_WEIGHTS not in here.run(1.0, rows=1)[-1].plan.residency.values()
    with pytest.raises(PolicyError, match="goes with arm 'plain' alone"):
        Pin(Arm("mtp", 2), ("*",), "ops", "a baseline", 1.0, release_drafter=True)


def test_memory_wins_over_a_pin_and_over_gain():
    here = world()
    here.run(10.0, rows=4)
    pin = Pin(Arm("dflash2", 7), ("*",), "ops", "load test", here.now_s + 100.0)
    for signals in ({"pin": pin}, {}):
        made = here.run(2.0, rows=4, reading=NO_MEMORY, **signals)
        assert {decision.plan.arm for decision in made} == {Arm()}
        assert {decision.reason for decision in made} == {Reason.MEMORY_RED}


def test_a_pinned_drafter_that_memory_takes_away_leaves_the_lighter_one_to_the_law():
    here = world(limits=Limits(memory=MemoryLimits(escalate_s=1.0)))
    here.run(10.0, rows=4)
    pin = Pin(Arm("dflash2", 7), ("*",), "ops", "load test", here.now_s + 100.0)
    made = here.run(10.0, rows=4, reading=MemoryReading(1000, 10, None), pin=pin)
    assert made[-1].state.governor.release is Release.HEAVY_DRAFTER
    assert made[-1].plan.arm.drafter == "mtp"
    assert made[-1].reason is Reason.MEMORY_AMBER
    # Back with the memory: the pin is still in force.
    assert here.run(20.0, rows=4, pin=pin)[-1].plan.arm == pin.arm


def test_memory_is_released_in_order_and_all_of_it_comes_back():
    here = world(limits=Limits(memory=MemoryLimits(escalate_s=4.0, restore_s=6.0)))
    here.run(5.0, rows=4)
    releases = []
    for reading in (NO_MEMORY, MemoryReading(1000, 500, None)):
        made = here.run(36.0, rows=4, reading=reading)
        for decision in made:
            if not releases or releases[-1] != decision.state.governor.release:
                releases.append(decision.state.governor.release)
    assert releases == [Release(i) for i in (3, 4, 5, 4, 3, 2, 1, 0)]
    assert drafters_of([here.decision]) == ["dflash2"]


def test_residency_follows_the_release():
    here = world(limits=Limits(memory=MemoryLimits(escalate_s=5.0)))
    here.run(10.0, rows=4)
    assert here.decision.plan.residency == {"dflash2": Residency.WARM, "mtp": Residency.COLD}
    here.run(6.0, rows=4, reading=NO_MEMORY)
    assert set(here.decision.plan.residency.values()) == {Residency.NO_CONTEXT}
    here.run(6.0, rows=4, reading=NO_MEMORY)
    assert set(here.decision.plan.residency.values()) == {Residency.NO_WEIGHTS}


def test_a_full_pool_narrows_drafts_to_what_fits():
    here = world()
    here.run(10.0, rows=4)
    # Four requests and 16 tokens that are free: three draft tokens and the anchor for each.
    made = here.run(5.0, rows=4, pool=PoolSignal(100, 99, 16))
    assert {decision.plan.arm.draft_length for decision in made} <= {0, 1, 3}
    assert made[0].reason is Reason.MEMORY_AMBER


def test_an_idle_context_is_kept_no_longer_than_catching_up_takes():
    needs = {"dflash2": DrafterCondition(catch_up_s=0.5, sync_s=0.005)}
    here = world(WEAK, ladder=ONE_DRAFTER)
    here.run(5.0, rows=1, drafters=needs)
    assert drafters_of([here.decision]) == ["dflash2"]
    plain = [d for d in here.run(4.0, rows=64, drafters=needs) if d.plan.arm.is_plain]
    kept = [decision.plan.residency["dflash2"] for decision in plain]
    # A hundred steps of 5 ms are the half second that catching up would take; four of them ran
    # before the first decision that kept it.
    assert kept[:24] == [Residency.WARM] * 24
    assert kept[-1] is Residency.COLD


def test_a_change_is_measured_against_plain():
    made = world().run(40.0, rows=1)
    found = [decision.realised for decision in made if decision.realised]
    over_plain = [realised.gain for realised in found if realised.over.is_plain]
    assert over_plain
    assert over_plain[-1] > 1.5


def test_an_idle_replica_changes_nothing():
    here = world()
    here.run(10.0, rows=1)
    arm = here.decision.plan.arm
    idle = here.run(300.0, rows=0)
    assert {decision.plan.arm for decision in idle} == {arm}
    assert idle[-1].reason is Reason.IDLE


def test_a_trial_lets_few_requests_draft_and_costs_little_else():
    trials = [d for d in world(WEAK).run(60.0, rows=64) if d.reason is Reason.PROBE]
    drafting = [trial.plan for trial in trials if not trial.plan.arm.is_plain]
    assert drafting
    assert {plan.num_drafting for plan in drafting} == {4}


def test_trials_lose_no_more_time_than_their_share():
    here = world(WEAK, Limits(exploration_share=0.01), noise=0.0)
    here.run(20.0, rows=64)
    start = len(here.signals)
    trials = [d for d in here.run(120.0, rows=64) if d.reason is Reason.PROBE]
    assert trials
    steps = [step for signals in here.signals[start:] for step in signals.steps]
    worth_s = sum(step.num_emitted_tokens for step in steps) / 64 * step_s(Arm(), 64)
    assert worth_s >= 0.985 * sum(step.step_time_s for step in steps)


def test_between_equals_nothing_counts_as_kept_back():
    """Requests that want no drafts make mtp worth what plain is, give or take noise."""
    made = world().run(10.0, rows=1, requests=(RequestSignal("a", 0),))
    assert {decision.plan.arm for decision in made} == {Arm()}
    assert Reason.OPTED_OUT not in {decision.reason for decision in made}


def test_time_in_which_nothing_runs_earns_no_trials():
    here = world()
    here.run(10.0, rows=1)
    before = here.decision.state.ledger.amount
    here.now_s += 1000.0
    here.run(0.01, rows=1)
    assert here.decision.state.ledger.amount - before < 0.02


def test_lighter_steps_that_need_a_context_nobody_kept_are_not_taken_for_free():
    """With 32 requests the lighter drafter is worth a fifth more, and 30 s of catching up not."""

    def after_the_spike(**signals) -> Plan:
        here = world({"dflash2": 0.7, "mtp": 0.6})
        here.run(30.0, rows=1)
        assert drafters_of([here.decision]) == ["dflash2"]
        here.run(1.0, rows=32, **signals)
        return here.decision.plan

    assert (after_the_spike().arm.drafter, after_the_spike().taking_over) == ("mtp", None)
    needs = {"mtp": DrafterCondition(catch_up_s=30.0)}
    begun = after_the_spike(drafters=needs)
    # Those that run would lose with as many draft tokens of the heavier one as before.
    assert (begun.arm.drafter, begun.taking_over) == ("mtp", Arm("dflash2", 3))
    # Where what runs is forbidden, plain decoding costs nothing to go to.
    capped = world({"dflash2": 0.7, "mtp": 0.6}, Limits({"dflash2": 8}))
    capped.run(30.0, rows=1)
    assert set(drafters_of(capped.run(1.0, rows=32, drafters=needs))) == {PLAIN}

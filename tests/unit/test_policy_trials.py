"""Trials of what is idle: with how many, for how long, in which turn, and what comes after."""

from dataclasses import replace

import pytest

from policy.arms import PLAIN, PLAIN_ARM, Arm
from policy.budget import Purse
from policy.controller import decide
from policy.decision import Decision
from policy.probe import NUM_CANARIES, Probe, ProbeClock
from policy.reasons import Reason
from policy.signals import DrafterCondition
from policy.survival import Survival
from tests.rigs.policy_world import World, drafters_of, terms

TRIED = Arm("dflash2", 3)


def probe(graded: int, accepted: int, num_steps: int) -> Probe:
    found = Survival((float(graded),), (float(accepted),))
    return Probe(TRIED, Arm("mtp", 2), num_steps=num_steps, found=found)


def test_a_trial_whose_first_tokens_are_all_wrong_is_over_early():
    assert probe(8, 0, 4).is_over
    assert not probe(7, 0, 4).is_over
    assert not probe(8, 1, 4).is_over
    assert probe(16, 1, 10).is_over


@pytest.mark.parametrize(
    ("known", "num_rows", "num_steps"),
    [
        (Survival((100.0,), (80.0,)), 4, 10),
        (Survival((100.0,), (0.0,)), 4, 4),
        (Survival((100.0,), (0.0,)), 1, 10),
        (Survival(), 1, 18),
    ],
)
def test_what_is_likely_to_be_over_early_is_planned_so(known, num_rows, num_steps):
    assert Probe(TRIED, Arm()).num_steps_planned(known, num_rows) == num_steps


def trials_of(made: list[Decision], drafter: str) -> list[Decision]:
    """Return the first decision of each trial of a drafter."""
    starts, was_trial = [], False
    for decision in made:
        is_trial = decision.state.probe is not None and decision.plan.arm.drafter == drafter
        starts += [decision] if is_trial and not was_trial else []
        was_trial = is_trial
    return starts


def test_one_drafts_in_a_trial_where_each_has_a_long_context_to_catch_up_with():
    sizes = {}
    for catch_up_s in (0.0, 2.0):
        here = World(terms(), {"dflash2": 0.0, "mtp": 0.9})
        needs = {"dflash2": DrafterCondition(catch_up_s=catch_up_s)}
        made = here.run(300.0, rows=8, drafters=needs)
        sizes[catch_up_s] = {trial.plan.num_drafting for trial in trials_of(made, "dflash2")}
    assert sizes == {0.0: {NUM_CANARIES}, 2.0: {1}}


def test_a_drafter_that_is_known_to_be_nearly_as_good_is_tried_with_all():
    here = World(terms(), {"dflash2": 0.9, "mtp": 0.9})
    here.run(20.0, rows=8)
    made = here.run(120.0, rows=8)
    last = trials_of(made, "mtp")[-1]
    assert last.plan.num_drafting == 8
    assert last.plan.num_graded == NUM_CANARIES


def test_the_cheap_trials_of_plain_decoding_do_not_keep_a_dear_one_out():
    here = World(terms(), {"dflash2": 0.95, "mtp": 0.85})
    here.run(20.0, rows=4)
    here.chances["dflash2"] = 0.0
    made = here.run(400.0, rows=4)
    assert drafters_of(made)[-1] == "mtp"
    starts = [trial.at_s for trial in trials_of(made, "dflash2")]
    assert len(starts) > 8
    here.chances["dflash2"] = 0.95
    healed_s = here.now_s
    while here.decision.state.home_of(here.decision.plan.arm).drafter != "dflash2":
        assert here.now_s - healed_s < 60.0
        here.run(1.0, rows=4)


@pytest.mark.parametrize(("mtp_seen_s", "is_tried"), [(0.0, False), (19.9, True)])
def test_what_was_unseen_for_longest_is_saved_for_and_a_cheaper_trial_waits(mtp_seen_s, is_tried):
    here = World(terms(), {"dflash2": 0.95, "mtp": 0.0})
    here.run(20.0, rows=4)
    state, now_s = here.decision.state, here.now_s
    clocks = {
        "dflash2": state.clocks["dflash2"],
        "mtp": ProbeClock(mtp_seen_s, 4.0),
        PLAIN: ProbeClock(1.0, 4.0),
    }
    # Enough for a trial of plain decoding; to catch up with a request for the other is dearer.
    saved = replace(state, clocks=clocks, probe=None, ledger=Purse(0.1, 0.4, now_s))
    here.decision = replace(here.decision, state=saved)
    dear = {"mtp": DrafterCondition(catch_up_s=9.0)}
    (made, *_) = here.run(0.01, rows=4, drafters=dear)
    assert (made.plan.arm == PLAIN_ARM) == (made.reason is Reason.PROBE) == is_tried


def test_decisions_in_a_trial_replay():
    here = World(terms(), {"dflash2": 0.0, "mtp": 0.9})
    made = here.run(60.0, rows=4)
    at = next(i for i, decision in enumerate(made) if decision.reason is Reason.PROBE)
    assert decide(made[at - 1], here.signals[at], here.terms) == made[at]

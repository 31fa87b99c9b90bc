"""What is believed: chances of draft tokens, step times, and what both are worth."""

import random

import pytest

from policy.arms import PLAIN, PLAIN_ARM, Arm
from policy.correction import Corrections
from policy.cost import CostGrid, CostTable, rising_grid
from policy.errors import PolicyError
from policy.goodput import Load, Prices, drafting_worth, plain_worth
from policy.survival import Survival
from tests.rigs.policy_world import LADDER, terms


def graded(chance: float, drafts: int, width: int, seed: int = 0) -> Survival:
    draw, survival = random.Random(seed), Survival()
    for _ in range(drafts):
        counts, rights = [0] * width, [0] * width
        for place in range(width):
            counts[place] = 1
            if draw.random() >= chance:
                break
            rights[place] = 1
        survival = survival.plus(tuple(counts), tuple(rights))
    return survival


def test_survival_is_the_product_of_the_chances_at_each_place():
    outlook = graded(0.8, 5000, 4).outlook(4)
    assert outlook.survival == pytest.approx([0.8, 0.64, 0.512, 0.41], abs=0.06)
    assert outlook.tokens(2) == 1.0 + sum(outlook.survival[:2])


def test_what_was_not_graded_is_not_taken_for_a_refusal():
    # Narrow drafts all kept: the places beyond were never looked at and promise as much.
    outlook = Survival().plus((400, 400), (400, 400)).outlook(4)
    assert outlook.survival[3] > 0.9


def test_old_grades_fade_by_newer_grades_of_their_own_place():
    old = Survival((1000.0, 1000.0), (0.0, 0.0))
    new = old.plus((512, 0), (512, 0))
    assert new.graded[0] == pytest.approx(500.0 + 512.0)
    assert new.accepted == (512.0, 0.0)
    assert new.graded[1] == 1000.0


def test_more_grades_leave_less_doubt_and_shared_places_none():
    few, many = graded(0.8, 30, 4).outlook(4), graded(0.8, 600, 4).outlook(4)
    assert many.spread(4) < few.spread(4)
    assert few.spread(4, beyond=3) < few.spread(4)
    assert few.spread(3, beyond=3) == 0.0


def test_a_probe_that_agrees_is_added_and_one_that_does_not_takes_over():
    known = Survival((400.0,), (320.0,))
    agreeing = known.judged_by(Survival((50.0,), (39.0,)))
    assert agreeing.graded[0] > 400.0
    assert known.judged_by(Survival((50.0,), (5.0,))) == Survival((50.0,), (5.0,))
    assert known.judged_by(Survival((50.0,), (0.0,))) == Survival((50.0,), (0.0,))


GRID = CostGrid((1, 4), (1, 3), (0, 1000), (((1.0, 2.0), (2.0, 3.0)), ((4.0, 5.0), (8.0, 9.0))))


@pytest.mark.parametrize(
    ("at", "seconds"),
    [
        ((1, 1, 0), 1.0),
        ((4, 3, 1000), 9.0),
        ((2.5, 2, 500), (1.0 + 2.0 + 2.0 + 3.0 + 4.0 + 5.0 + 8.0 + 9.0) / 8),
        ((1, 0, 0), 0.5),
        ((7, 1, 0), 7.0),
        ((1, 1, 3000), 4.0),
    ],
    ids=["first", "last", "middle", "below", "more rows", "more context"],
)
def test_step_times_are_read_between_and_past_the_measured_points(at, seconds):
    assert GRID.at(*at) == pytest.approx(seconds)


def test_past_the_last_point_a_step_never_gets_cheaper():
    assert CostGrid((1, 2), (0,), (0,), (((2.0,),), ((1.5,),))).at(8, 0, 0) == 1.5


def test_a_noisy_profile_is_made_to_rise():
    medians = {(1, 0, 0): 2.0, (2, 0, 0): 1.5, (4, 0, 0): 3.0}
    assert rising_grid((1, 2, 4), (0,), (0,), medians).seconds == (((2.0,),), ((2.0,),), ((3.0,),))


@pytest.mark.parametrize(
    ("rows", "seconds", "message"),
    [
        ((2, 1), (((1.0,),), ((1.0,),)), "ascend"),
        ((1, 2), (((1.0,),),), "shape"),
        ((1,), (((0.0,),),), "0 seconds"),
        ((1,), (((float("nan"),),),), "0 seconds"),
    ],
)
def test_a_table_that_cannot_be_is_refused(rows, seconds, message):
    with pytest.raises(PolicyError, match=message):
        CostGrid(rows, (0,), (0,), seconds)


def test_a_table_for_another_model_is_refused():
    plain_only = CostTable({PLAIN: CostGrid((1,), (0,), (0,), (((1.0,),),))})
    with pytest.raises(PolicyError, match="another model"):
        plain_only.check_ladder(LADDER)
    with pytest.raises(PolicyError, match="yardstick"):
        CostTable({})


ARM = Arm("dflash2", 3)


def corrected(ratios, start=None, arm=ARM, at_s=0.0) -> Corrections:
    corrections = start or Corrections()
    for ratio in ratios:
        corrections = corrections.plus(arm, 8, ratio, at_s)
    return corrections


def test_live_steps_correct_the_table_and_a_spike_does_not():
    drifted = corrected([1.3] * 60)
    assert drifted.factor(ARM, 8, 0.0) == pytest.approx(1.3, abs=0.01)
    spiked = corrected([8.0], drifted)
    assert spiked.levels == drifted.levels
    assert spiked.num_rejected == 1


def test_spikes_that_do_not_end_are_the_truth():
    assert corrected([1.9] * 60).factor(ARM, 8, 0.0) == pytest.approx(1.9, abs=0.01)
    assert corrected([50.0] * 60).factor(ARM, 8, 0.0) == 2.0


def test_what_one_load_taught_an_arm_ages_out_and_what_slowed_all_stays():
    slow = corrected([1.5] * 100)
    back = corrected([1.0] * 100, slow, PLAIN_ARM, at_s=100.0)
    assert back.factor(ARM, 8, 0.0) == pytest.approx(1.5, abs=0.01)
    assert back.factor(ARM, 8, 400.0) == pytest.approx(1.0, abs=0.01)
    assert slow.factor(PLAIN_ARM, 8, 400.0) == pytest.approx(1.5, abs=0.01)


def test_a_table_that_drifts_is_reported_with_the_worst_first():
    drifts = corrected([1.5] * 60).drifts()
    assert {drift.where for drift in drifts} == {"", "dflash2@8", "dflash2:3@8"}
    assert drifts[0].ratio == max(drift.ratio for drift in drifts)
    assert corrected([1.1] * 60).drifts() == ()


PRICES = Prices(terms().costs, Corrections(), 0.0)
LIKELY = Survival((400.0,) * 7, (320.0,) * 7).outlook(7)


def test_on_decoding_alone_worth_is_tokens_in_plain_steps():
    load = Load(8)
    worth = drafting_worth(ARM, LIKELY, (), PRICES, load)
    plain_s = plain_worth(PRICES, load).seconds
    assert worth.value == pytest.approx(LIKELY.tokens(3) * plain_s / worth.seconds)
    assert worth.lower < worth.value


def test_a_long_prompt_in_the_step_does_not_make_wide_drafts_look_better():
    wide, load = Arm("dflash2", 7), Load(64)
    prefilled = Prices(CostTable(PRICES.table.grids, prefill_s=0.0001), Corrections(), 0.0)
    losing = drafting_worth(wide, Survival((400.0,), (80.0,)).outlook(7), (), prefilled, load)
    assert losing.value < 1.0
    beside = drafting_worth(
        wide, Survival((400.0,), (80.0,)).outlook(7), (), prefilled, Load(64, 4096)
    )
    assert losing.value < beside.value < 1.0


def test_rows_that_may_not_draft_neither_cost_nor_bring_anything():
    load = Load(8)
    half = drafting_worth(ARM, LIKELY, (0, 0, 0, 0), PRICES, load)
    free = drafting_worth(ARM, LIKELY, (), PRICES, load)
    none = drafting_worth(ARM, LIKELY, (0,) * 8, PRICES, load)
    assert none.value < half.value < free.value
    assert none.seconds <= half.seconds <= free.seconds

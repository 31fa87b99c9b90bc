"""What the law benchmark counts with: chi-square, the processed law, three chances to be kept."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from benchmarks.law.__main__ import _matches
from benchmarks.law.chi_square import chi_square_p
from benchmarks.law.laws import law_of, truncated_softmax
from benchmarks.law.matches import Match, match_rate
from benchmarks.law.rates import Rates, mean_of, rates_at
from benchmarks.law.recorded import RecordedWalk
from benchmarks.rigs.arms import alone
from benchmarks.rigs.draft_arms import DraftArm, full_width_of_first, scripted
from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.planners import RandomModes, RandomPlanner, TogglingPlanner
from benchmarks.rigs.script_drafter import Script, all_right, failing, none
from dflash.drafters.base import DraftRow
from dflash.drafters.walk import Scoring, Selector, WalkInput, walk_reference
from dflash.kernels.draw import Draw, allowed_ids
from dflash.load import load_models
from dflash.noise import NoiseKey, gumbel_noise
from dflash.plan import PLAIN, Arm, Decoding, PlanSignals
from dflash.request import GenerateRequest, SamplingParams
from dflash.sampling import ChoiceRow
from dflash.stats import EngineCounts, StepStats
from tests.rigs.drafter_config import drafter_config

P = np.array([0.50, 0.25, 0.15, 0.07, 0.03])
Q = np.array([0.05, 0.30, 0.25, 0.30, 0.10])
SIGNALS = PlanSignals(EngineCounts(3, 0, 0, 9, 0, 64), tuple(map(Decoding, "abc")), StepStats())
ROW = ChoiceRow(SamplingParams(), 0, 0, 0, (0, 1), (1, 1), (3,))


@pytest.mark.parametrize(
    ("seen", "law", "p"),
    [
        # Tables of the chi-square law: 3.841 at one degree, 9.488 at four, are exceeded by 5 %.
        ([510, 490], [0.5, 0.5], 0.5271),
        ([531, 469], [0.5, 0.5], 0.0499),
        ([200, 200, 200, 200, 200], [0.2] * 5, 1.0),
        ([229, 171, 229, 171, 200], [0.2] * 5, 0.0021),
    ],
)
def test_the_chance_of_a_distance_is_that_of_the_tables(
    seen: list[int], law: list[float], p: float
):
    assert chi_square_p(np.array(seen), np.array(law)) == pytest.approx(p, abs=2e-4)


def test_a_draw_of_an_impossible_id_is_never_excused():
    assert chi_square_p(np.array([999, 1]), np.array([1.0, 0.0])) == 0.0


@pytest.mark.parametrize("vocab", [8, 5000])
def test_true_draws_give_chances_that_are_spread_evenly(vocab: int):
    draw = np.random.default_rng(0)
    law = draw.dirichlet(np.full(vocab, 0.3))
    chances = np.array([chi_square_p(draw.multinomial(3000, law), law) for _ in range(400)])
    # 400 even numbers: the mean's spread is 0.0144, the share under 0.1 has one of 0.015.
    assert abs(chances.mean() - 0.5) < 5 * 0.0144
    assert abs((chances < 0.1).mean() - 0.1) < 5 * 0.015


def test_draws_of_another_temperature_are_found_on_a_large_vocabulary():
    draw = np.random.default_rng(0)
    logits = 2 * draw.standard_normal(49_152)
    law = truncated_softmax(logits, SamplingParams(temperature=1.0))
    other = truncated_softmax(logits, SamplingParams(temperature=0.9))
    assert chi_square_p(draw.multinomial(3000, other), law) < 1e-6


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.7, top_k=40),
        SamplingParams(temperature=1.0, top_p=0.8),
        SamplingParams(temperature=2.0, min_p=0.2),
        SamplingParams(temperature=1.3, top_k=90, top_p=0.9, min_p=0.02),
    ],
)
def test_truncation_leaves_the_ids_that_the_engine_draws_from(params: SamplingParams):
    logits = np.random.default_rng(1).standard_normal(200).astype(np.float32)
    scores = (logits.astype(np.float64) - logits.max()) / params.temperature
    how = Draw(NoiseKey(0, 0, 0), params.temperature, params.top_k, params.top_p, params.min_p)

    law = truncated_softmax(logits.astype(np.float64), params)

    assert np.flatnonzero(law).tolist() == allowed_ids(logits, scores, how).tolist()
    kept = np.exp(scores) * (law > 0)
    assert law == pytest.approx(kept / kept.sum())


def test_a_law_knows_bias_penalties_and_bans():
    params = SamplingParams(logit_bias=((2, 1.0),), frequency_penalty=0.5, min_tokens=3)

    law = law_of(torch.zeros(4), replace(ROW, params=params))

    weights = np.exp([0.0, -1.0, 1.0, -np.inf])
    assert law == pytest.approx(weights / weights.sum())


def test_a_law_at_temperature_zero_is_the_lowest_of_the_largest():
    law = truncated_softmax(np.array([1.0, 2.0, 2.0]), SamplingParams(temperature=0.0))
    assert law.tolist() == [0.0, 1.0, 0.0]


def test_the_chance_under_shared_noise_is_how_often_both_draw_the_same_id():
    ids, trials = np.arange(5), 20_000
    noise = np.stack([gumbel_noise(NoiseKey(seed, 0, 0), ids) for seed in range(trials)])
    agree = np.argmax(np.log(P) + noise, axis=1) == np.argmax(np.log(Q) + noise, axis=1)

    expected = rates_at(P, ids, Q).shared_noise

    assert abs(agree.mean() - expected) < 5 * np.sqrt(expected * (1 - expected) / trials)


def test_ids_that_the_drafter_cannot_choose_still_win_for_the_target():
    candidates = np.array([4, 1])
    noise = np.stack([gumbel_noise(NoiseKey(seed, 0, 0), np.arange(5)) for seed in range(20_000)])
    drafter = np.array([0.4, 0.6])
    mine = candidates[np.argmax(np.log(drafter) + noise[:, candidates], axis=1)]
    agree = np.argmax(np.log(P) + noise, axis=1) == mine

    expected = rates_at(P, candidates, drafter).shared_noise

    assert abs(agree.mean() - expected) < 5 * np.sqrt(expected * (1 - expected) / 20_000)


def test_equal_laws_always_agree_and_the_point_mass_is_the_likeliest_ids_chance():
    rates = rates_at(P, np.arange(5), P)
    assert rates.shared_noise == pytest.approx(1.0)
    assert rates.ratio_test == pytest.approx(1.0)
    assert rates.point_mass == 0.5


def test_the_ratio_test_keeps_what_the_laws_share():
    rates = rates_at(P, np.arange(5), Q)
    assert rates.ratio_test == pytest.approx(0.05 + 0.25 + 0.15 + 0.07 + 0.03)
    assert rates.point_mass == 0.25
    # Daliri, Musco and Suresh: no less than (1 - TV) / (1 + TV).
    distance = 1 - rates.ratio_test
    assert (1 - distance) / (1 + distance) <= rates.shared_noise <= rates.ratio_test


def test_a_mean_is_taken_of_each_chance():
    assert mean_of([Rates(0.2, 0.4, 0.0), Rates(0.4, 0.8, 1.0)]) == Rates(
        pytest.approx(0.3), pytest.approx(0.6), pytest.approx(0.5)
    )


def test_a_match_rate_says_how_far_it_may_lie_from_what_was_expected():
    likely, unlikely = Rates(0.9, 0.95, 0.5), Rates(0.1, 0.2, 0.0)
    rate = match_rate([Match(1.0, True, likely)] * 50 + [Match(1.0, False, unlikely)] * 50)

    assert rate.num_rows == 100
    assert rate.seen == 0.5
    assert rate.expected.shared_noise == pytest.approx(0.5)
    assert rate.expected.point_mass == pytest.approx(0.25)
    # Each row's own variance is 0.09.
    assert rate.spread == pytest.approx((100 * 0.09) ** 0.5 / 100)


@pytest.mark.parametrize(
    ("script", "missing"),
    [
        (all_right, []),
        (none, ["arm: drafted"]),
        (failing, ["arm: drafted", "arm: 15 drafter faults"]),
    ],
)
def test_an_arm_in_which_nothing_was_drafted_has_shown_nothing(script: Script, missing: list[str]):
    model = HashLM()
    asked = [GenerateRequest("r", (1, 2, 3), 17, SamplingParams(ignore_eos=True), seed=5)]
    reference = alone(model, asked).transcript
    arm = DraftArm(
        "arm",
        ("drafted",),
        lambda: [scripted(model, asked, reference, script)],
        full_width_of_first,
    )
    assert arm.what_is_missing(arm.serve(model, asked)) == missing


@pytest.mark.parametrize("is_reduced", [False, True])
def test_the_laws_taken_down_with_the_noise_give_the_drafts_that_were_walked(is_reduced: bool):
    draw = torch.Generator().manual_seed(3)
    rows = [
        DraftRow(5, 40, (0, 1, 2), num_drafts=4, temperature=0.7, seed=11, choice=0),
        DraftRow(2, 9, (3,), num_drafts=2, temperature=0.0, seed=12, choice=0),
        DraftRow(7, 3, (4,), num_drafts=3, temperature=2.0, seed=12, choice=1),
    ]
    selector = Selector(torch.randn(60, 8, generator=draw), torch.randn(60, 8, generator=draw))
    walk = RecordedWalk(walk_reference)

    drafts = walk(
        WalkInput(
            logits=4 * torch.randn(9, 30, generator=draw),
            states=torch.randn(9, 8, generator=draw),
            rows=rows,
            scoring=Scoring(
                num_candidates=16,
                multiplier=0.5,
                softcap=3.0,
                target_ids=torch.arange(0, 60, 2) if is_reduced else None,
                selector=selector,
            ),
        )
    )

    walked = {
        (row.seed, row.choice, row.position + 1 + slot): token_id
        for row, chosen in zip(rows, drafts, strict=True)
        for slot, token_id in enumerate(chosen)
        if row.temperature
    }
    redrawn = {
        place: int(
            each.candidates[np.argmax(np.log(each.law) + gumbel_noise(key, each.candidates))]
        )
        for place, each in walk.laws.items()
        for key in [NoiseKey(*place)]
    }
    assert len(walked) == 7
    assert redrawn == walked


def test_random_lengths_differ_by_request_and_by_step_and_reach_both_ends():
    planner = RandomPlanner({"a": 7}, seed=0)
    lengths = [
        tuple(plan.arm_for(each.request_id).draft_length for each in SIGNALS.decoding)
        for plan in (planner.plan(SIGNALS) for _ in range(200))
    ]
    assert {length for row in lengths for length in row} == set(range(8))
    assert sum(len(set(row)) > 1 for row in lengths) > 150
    assert len(set(lengths)) > 100


def test_a_toggling_planner_never_keeps_a_mode_and_lets_every_cold_step_be_caught_up():
    planner = TogglingPlanner({"a": 7, "b": 3})
    plans = [planner.plan(SIGNALS) for _ in range(20)]
    modes = [(plan.warm, plan.arm) for plan in plans]

    assert all(mode != after for mode, after in pairwise(modes))
    assert {arm for _, arm in modes} == {PLAIN, Arm("a", 7), Arm("b", 3)}
    after_cold = [after for mode, after in pairwise(modes) if not mode[0]]
    assert set(after_cold) == {(frozenset({"a", "b"}), PLAIN)}


def test_random_modes_visit_every_mode():
    planner = RandomModes({"a": 7, "b": 3}, seed=0)
    plans = [planner.plan(SIGNALS) for _ in range(200)]
    seen = {(len(plan.warm), plan.arm != PLAIN, bool(plan.by_request)) for plan in plans}
    assert seen == {
        (0, False, False),
        *((count, *rest) for count in (1, 2) for rest in ((False, False), (True, False))),
        *((count, is_drafting, True) for count in (1, 2) for is_drafting in (False, True)),
    }
    mixed = [{arm.drafter for arm in plan.by_request.values()} for plan in plans]
    assert {"a", "b"} in mixed


def test_the_drafts_of_a_loaded_drafter_are_judged_row_by_row(tmp_path):
    models = load_models(drafter_config(tmp_path))
    sampled = SamplingParams(temperature=1.0, ignore_eos=True)
    found = _matches(models, [GenerateRequest("r", (1, 2, 3), 20, sampled, seed=7)])
    assert found

"""Each sampling parameter does what it says; each test fails where its parameter is skipped."""

import math

import pytest
import torch
from torch import Tensor

from dflash.request import SamplingParams
from dflash.sampling import ChoiceRow, choose

EOS = 2


def ids_drawn(
    logits: list[float] | Tensor,
    params: SamplingParams,
    num_draws: int = 400,
    prompt: tuple[int, ...] = (0,),
    output: tuple[int, ...] = (),
) -> list[int]:
    """Return the tokens of one row under many seeds."""
    row = torch.as_tensor(logits, dtype=torch.float32)
    rows = [ChoiceRow(params, seed, 0, 10, prompt, output, (EOS,)) for seed in range(num_draws)]
    return [chosen.token_id for chosen in choose(row.expand(num_draws, -1).contiguous(), rows)]


def only_id(logits: list[float], params: SamplingParams, **context: tuple[int, ...]) -> int:
    """Return the token of a row that has one outcome under every seed."""
    (token_id,) = set(ids_drawn(logits, params, 20, **context))
    return token_id


def greedy(**changes: object) -> SamplingParams:
    return SamplingParams(temperature=0.0, **changes)  # pyright: ignore[reportArgumentType]


def test_temperature_zero_takes_the_largest_logit():
    assert only_id([0.0, 3.0, 2.9], greedy()) == 1


@pytest.mark.parametrize("vocab", [3, 255, 256, 257, 5000])
def test_equal_largest_logits_go_to_the_lower_id_wherever_they_lie(vocab: int):
    for first in {0, 1, vocab // 2, vocab - 2}:
        logits = torch.full((vocab,), -1.0)
        logits[first] = logits[vocab - 1] = 7.0
        assert set(ids_drawn(logits, greedy(), 2)) == {first}


def test_minus_zero_ties_with_zero():
    assert only_id([-1.0, -0.0, 0.0], greedy()) == 1


def test_low_temperature_sharpens_and_high_temperature_flattens():
    cold = ids_drawn([1.0, 0.0], SamplingParams(temperature=0.3))
    hot = ids_drawn([1.0, 0.0], SamplingParams(temperature=3.0))

    # Chances of id 1: 0.034 and 0.417, five standard deviations apart from 0.2.
    assert sum(cold) < 0.2 * len(cold) < sum(hot)


@pytest.mark.parametrize("temperature", [1e-6, 1e-45, 5e-324])
def test_a_temperature_that_would_overflow_still_takes_the_largest(temperature: float):
    logits = [-3e38, 3.0e38, 3.1e38, -math.inf]

    assert set(ids_drawn(logits, SamplingParams(temperature=temperature), 50)) == {2}


def test_top_k_keeps_the_k_largest():
    assert set(ids_drawn([1.0, 0.0, 0.9, 1.1], SamplingParams(top_k=2))) == {0, 3}


def test_ties_at_rank_k_go_to_the_lower_ids():
    logits = [0.0, 1.0, 0.0, 1.0, 2.0, 1.0]

    assert set(ids_drawn(logits, SamplingParams(top_k=3))) == {1, 3, 4}


def test_top_k_of_the_vocabulary_or_more_keeps_all():
    assert set(ids_drawn([0.0] * 4, SamplingParams(top_k=4))) == {0, 1, 2, 3}
    assert set(ids_drawn([0.0] * 4, SamplingParams(top_k=900_000))) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(1e-12, {0}), (0.25, {0}), (0.2500001, {0, 1}), (0.75, {0, 1, 2}), (0.99, {0, 1, 2, 3})],
)
def test_top_p_keeps_the_shortest_prefix_that_reaches_it(top_p: float, kept: set[int]):
    assert set(ids_drawn([5.0] * 4, SamplingParams(top_p=top_p))) == kept


def test_top_p_sees_the_temperature():
    # At temperature 1 the first id has 0.73 of the mass, at 4 it has 0.56.
    assert set(ids_drawn([1.0, 0.0], SamplingParams(top_p=0.7))) == {0}
    assert set(ids_drawn([1.0, 0.0], SamplingParams(top_p=0.7, temperature=4.0))) == {0, 1}


def test_top_p_takes_its_share_of_what_top_k_left():
    # Of four equal ids two stay; a half of their mass is one, a half of all would be two.
    assert set(ids_drawn([0.0] * 4, SamplingParams(top_k=2, top_p=0.5))) == {0}


def test_min_p_drops_what_is_under_its_share_of_the_largest():
    logits = [0.0, math.log(0.51), math.log(0.49)]

    assert set(ids_drawn(logits, SamplingParams(min_p=0.5))) == {0, 1}


def test_min_p_sees_the_temperature():
    assert set(ids_drawn([0.0, -1.0], SamplingParams(min_p=0.5))) == {0}
    assert set(ids_drawn([0.0, -1.0], SamplingParams(min_p=0.5, temperature=2.0))) == {0, 1}


def test_min_p_of_one_at_temperature_one_is_greedy():
    logits = torch.randn(64, 1000, generator=torch.Generator().manual_seed(0))
    kept, plain = (
        [
            chosen.token_id
            for chosen in choose(
                logits, [ChoiceRow(params, seed, 0, 1, (0,), (), (EOS,)) for seed in range(64)]
            )
        ]
        for params in (SamplingParams(min_p=1.0), greedy())
    )

    assert kept == plain


def test_logit_bias_moves_the_argmax():
    assert only_id([1.0, 0.0], greedy(logit_bias=((1, 1.5),))) == 1
    assert only_id([1.0, 0.0], greedy(logit_bias=((1, 0.5), (1, 0.75)))) == 1


@pytest.mark.parametrize("temperature", [0.0, 1.0, 100.0])
def test_a_bias_of_minus_100_never_appears_at_any_temperature(temperature: float):
    params = SamplingParams(temperature=temperature, logit_bias=((1, -100.0),))

    assert set(ids_drawn([0.0, 150.0, 0.0], params)) <= {0, 2}


def test_presence_penalty_is_paid_once_whatever_the_count():
    params = greedy(presence_penalty=1.0)

    assert only_id([1.5, 0.0], params, output=(0, 0, 0)) == 0
    assert only_id([0.5, 0.0], params, output=(0,)) == 1


def test_frequency_penalty_is_paid_per_emission():
    params = greedy(frequency_penalty=1.0)

    assert only_id([1.5, 0.0], params, output=(0,)) == 0
    assert only_id([1.5, 0.0], params, output=(0, 0)) == 1


def test_presence_and_frequency_penalties_do_not_count_the_prompt():
    params = greedy(presence_penalty=2.0, frequency_penalty=2.0)

    assert only_id([1.0, 0.0], params, prompt=(0, 0, 0)) == 0


@pytest.mark.parametrize("where", ["prompt", "output"])
def test_repetition_penalty_counts_prompt_and_output(where: str):
    params = greedy(repetition_penalty=2.0)
    context: dict[str, tuple[int, ...]] = {"prompt": (2,), where: (0,)}

    assert only_id([1.5, 1.0, 0.0], params, **context) == 1


def test_repetition_penalty_multiplies_a_negative_logit():
    params = greedy(repetition_penalty=2.0)

    assert only_id([-1.0, -1.5], params, prompt=(0,)) == 1


def test_bias_comes_before_the_repetition_penalty():
    # (1 + 2) / 3 = 1 is under 1.2; 1 / 3 + 2 would be over it.
    params = greedy(repetition_penalty=3.0, logit_bias=((0, 2.0),))

    assert only_id([1.0, 1.2], params, prompt=(0,)) == 1


def test_min_tokens_bans_the_end_until_that_many_tokens_are_out():
    params = greedy(min_tokens=10)
    logits = [0.0, 1.0, 9.0]

    assert only_id(logits, params, output=(0,) * 9) == 1
    assert only_id(logits, params, output=(0,) * 10) == EOS


def test_min_tokens_bans_stop_token_ids_too():
    params = greedy(min_tokens=1, stop_token_ids=(1,))

    assert only_id([0.0, 5.0, 9.0], params) == 0


def test_ignore_eos_frees_the_models_end_but_not_a_stop_token_id():
    free = greedy(min_tokens=1, ignore_eos=True)
    stop = greedy(min_tokens=1, ignore_eos=True, stop_token_ids=(EOS,))

    assert only_id([0.0, 5.0, 9.0], free) == EOS
    assert only_id([0.0, 5.0, 9.0], stop) == 1


def test_banned_ids_take_no_place_in_top_k():
    params = SamplingParams(top_k=2, logit_bias=((0, -100.0),))

    assert set(ids_drawn([9.0, 1.0, 1.0, 0.0], params)) == {1, 2}

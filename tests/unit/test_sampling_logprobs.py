"""Log-probabilities come from the raw logits of the row that chose the token."""

import math

import pytest
import torch

from dflash.logprobs import token_logprobs
from dflash.request import SamplingParams, TokenLogprobs
from dflash.sampling import ChoiceRow, choose


def chosen_logprobs(logits: torch.Tensor, params: SamplingParams) -> tuple[int, TokenLogprobs]:
    (chosen,) = choose(logits[None], [ChoiceRow(params, 5, 0, 3, (0,), (1,), (2,))])
    assert chosen.logprobs is not None
    return chosen.token_id, chosen.logprobs


@pytest.mark.parametrize("vocab", [1, 8, 300, 49_152])
def test_the_probabilities_of_the_whole_vocabulary_sum_to_one(vocab: int):
    logits = 3 * torch.randn(vocab, generator=torch.Generator().manual_seed(0))
    top = token_logprobs(logits, 0, vocab).top

    assert len(top) == vocab
    assert math.fsum(math.exp(logprob) for _, logprob in top) == pytest.approx(1.0, abs=1e-8)


def test_logprobs_equal_the_log_softmax_of_the_row():
    logits = 3 * torch.randn(1000, generator=torch.Generator().manual_seed(0))
    expected = torch.log_softmax(logits.double(), dim=0)

    for token_id, logprob in token_logprobs(logits, 0, 1000).top:
        assert logprob == pytest.approx(float(expected[token_id]), abs=1e-8)


def test_the_top_list_is_largest_first_with_ties_to_the_lower_id():
    logits = torch.tensor([1.0, 3.0, 2.0, 3.0, 2.0, 2.0])

    assert [token_id for token_id, _ in token_logprobs(logits, 0, 4).top] == [1, 3, 2, 4]


def test_the_chosen_tokens_logprob_is_given_even_outside_the_top_list():
    logits = torch.tensor([5.0, 4.0, 0.0])
    params = SamplingParams(temperature=0.0, num_logprobs=1, logit_bias=((2, 50.0),))
    token_id, logprobs = chosen_logprobs(logits, params)

    assert token_id == 2
    assert logprobs.logprob == pytest.approx(float(torch.log_softmax(logits.double(), 0)[2]))
    assert [index for index, _ in logprobs.top] == [0]


def test_temperature_truncation_bias_and_penalties_do_not_change_logprobs():
    logits = torch.tensor([5.0, 4.0, 0.0])
    plain = chosen_logprobs(logits, SamplingParams(temperature=0.0, num_logprobs=3))
    changed = chosen_logprobs(
        logits,
        SamplingParams(
            temperature=0.1, top_k=1, num_logprobs=3, presence_penalty=2.0, logit_bias=((2, -9.0),)
        ),
    )

    assert changed == plain


@pytest.mark.parametrize("num_logprobs", [None, 0])
def test_none_asks_for_nothing_and_zero_for_the_chosen_token_alone(num_logprobs: int | None):
    params = SamplingParams(num_logprobs=num_logprobs)
    (chosen,) = choose(torch.zeros(1, 4), [ChoiceRow(params, 5, 0, 3, (0,), (), (2,))])

    if num_logprobs is None:
        assert chosen.logprobs is None
    else:
        assert chosen.logprobs is not None
        assert chosen.logprobs.logprob == pytest.approx(math.log(0.25))
        assert chosen.logprobs.top == ()

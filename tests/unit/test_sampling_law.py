"""The drawn tokens follow the processed softmax, and draws at different places are independent."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.law.chi_square import chi_square_p
from dflash.request import SamplingParams
from dflash.sampling import ChoiceRow, choose

ROW = ChoiceRow(SamplingParams(), 0, 0, 0, (0,), (), ())
LOGITS = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, 0.7])


# What a true law gives once in three million tests.
ALARMING = 3e-7


def draws(logits: torch.Tensor, rows: list[ChoiceRow]) -> NDArray[np.int64]:
    batch = logits.expand(len(rows), -1).contiguous()
    return np.array([chosen.token_id for chosen in choose(batch, rows)])


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        (SamplingParams(temperature=0.3), range(8)),
        (SamplingParams(temperature=1.0), range(8)),
        (SamplingParams(temperature=2.0), range(8)),
        (SamplingParams(temperature=1.0, top_k=3), (0, 1, 2)),
        (SamplingParams(temperature=1.0, top_p=0.8), (0, 1, 2, 7)),
        (SamplingParams(temperature=2.0, min_p=0.5), (0, 1, 2, 7)),
        (SamplingParams(temperature=1.0, logit_bias=((0, -1.0), (6, 2.0))), range(8)),
    ],
)
def test_seeds_draw_the_processed_softmax(params: SamplingParams, kept: range | tuple[int, ...]):
    logits = LOGITS.double()
    for token_id, bias in params.logit_bias:
        logits[token_id] += bias
    law = torch.full((8,), -math.inf, dtype=torch.float64)
    law[list(kept)] = logits[list(kept)] / params.temperature

    seen = draws(LOGITS, [replace(ROW, params=params, seed=seed) for seed in range(20_000)])

    assert chi_square_p(np.bincount(seen, minlength=8), law.softmax(0).numpy()) > ALARMING


def test_a_vocabulary_of_49152_follows_its_softmax_in_48_groups_of_ids():
    logits = 2 * torch.randn(49_152, generator=torch.Generator().manual_seed(0))
    law = logits.double().softmax(0).numpy().reshape(-1, 48).sum(axis=0)

    rows = [replace(ROW, seed=seed) for seed in range(200)]
    seen = np.concatenate(
        [draws(logits, [replace(row, position=place) for row in rows]) for place in range(15)]
    )

    assert chi_square_p(np.bincount(seen % 48, minlength=48), law) > ALARMING


@pytest.mark.parametrize("axis", ["position", "choice", "seed"])
def test_draws_at_neighbouring_keys_are_independent(axis: str):
    law = LOGITS.double().softmax(0).numpy()
    seen = draws(LOGITS, [replace(ROW, **{axis: value}) for value in range(20_001)])
    pairs = np.bincount(seen[:-1] * 8 + seen[1:], minlength=64)

    assert chi_square_p(pairs, np.outer(law, law).ravel()) > ALARMING


def test_the_same_draw_of_two_rows_with_one_law_is_one_draw():
    shifted = draws(LOGITS + 4.0, [replace(ROW, seed=seed) for seed in range(500)])

    assert shifted.tolist() == draws(LOGITS, [replace(ROW, seed=s) for s in range(500)]).tolist()

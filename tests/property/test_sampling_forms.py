"""The compiled draw, which prunes, equals the reference, which computes every score."""

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dflash.kernels.draw import Draw, draw, draw_reference
from dflash.kernels.mass import largest_ids, total_mass
from dflash.noise import NoiseKey
from dflash.portable_math import mass_of

VOCABS = (1, 2, 7, 255, 256, 257, 1000, 5003)


@st.composite
def logit_rows(draw_from: st.DrawFn) -> Tensor:
    """Rows of every shape that matters: peaked, flat, tied, huge, banned in part."""
    rng = np.random.default_rng(draw_from(st.integers(0, 2**32)))
    vocab = draw_from(st.sampled_from(VOCABS))
    scale = draw_from(st.sampled_from([0.0, 1e-40, 0.01, 1.0, 3.0, 30.0, 1e4, 1e37]))
    logits = rng.normal(0, 1, vocab) * scale + draw_from(st.sampled_from([0.0, -50.0, 20.0]))
    step = draw_from(st.sampled_from([0.0, 0.0, 0.5, 4.0]))
    if step:
        logits = np.round(logits / step) * step
    if draw_from(st.booleans()):
        logits[rng.random(vocab) < draw_from(st.sampled_from([0.1, 0.99]))] = -np.inf
        logits[rng.integers(vocab)] = -0.0
    return torch.from_numpy(logits.astype(np.float32))


draw_params = st.builds(
    Draw,
    key=st.builds(
        NoiseKey, st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)
    ),
    temperature=st.sampled_from([0.0, 5e-324, 1e-6, 0.3, 1.0, 2.0, 100.0]) | st.floats(0.01, 5.0),
    top_k=st.sampled_from([0, 0, 1, 2, 5, 50, 256, 1_000_000]),
    top_p=st.sampled_from([1.0, 1.0, 1e-300, 0.5, 0.9, math.nextafter(1.0, 0.0)])
    | st.floats(0.001, 1.0),
    min_p=st.sampled_from([0.0, 0.0, 5e-324, 0.05, 1.0]) | st.floats(0.0, 1.0),
)


@given(logit_rows(), st.lists(draw_params, min_size=1, max_size=12))
def test_pruning_and_compiling_change_no_token(logits: Tensor, draws: list[Draw]):
    expected = [draw_reference(logits.numpy(), how) for how in draws]

    assert draw([logits] * len(draws), draws) == expected


@given(logit_rows(), st.integers(0, 5003))
def test_the_largest_ids_are_those_of_a_stable_sort(logits: Tensor, count: int):
    order = np.argsort(-logits.numpy(), kind="stable")[:count]
    expected = [token_id for token_id in order.tolist() if logits[token_id] > -math.inf]

    assert largest_ids(logits, count).tolist() == expected


@given(logit_rows())
def test_the_total_mass_does_not_depend_on_the_form_or_the_order(logits: Tensor):
    scores = logits.numpy().astype(np.float64)
    backwards = (scores - scores.max())[::-1].copy()

    assert total_mass(logits) == int(mass_of(backwards).sum())

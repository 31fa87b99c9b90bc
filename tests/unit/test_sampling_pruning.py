"""Skipping ids that cannot win loses no winner, however close the race."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from dflash.kernels.draw import Draw, draw, draw_reference
from dflash.noise import NoiseKey, gumbel_noise, noise_words

VOCAB = 49_152


def plain_draw(seed: int, temperature: float = 1.0) -> Draw:
    return Draw(NoiseKey(seed, 0, 0), temperature, top_k=0, top_p=1.0, min_p=0.0)


@pytest.mark.parametrize("is_winner", [True, False])
def test_a_race_decided_by_the_last_bit_of_a_logit_is_decided_right(is_winner: bool):
    races = 0
    for seed in range(300):
        # The leader lies in the first block and sets the bar for the rival's block.
        rival = 300 + seed
        ahead, behind = gumbel_noise(NoiseKey(seed, 0, 0), np.array([0, rival]))
        if behind <= ahead:
            continue
        handicap = np.float32(ahead - behind)
        while (float(handicap) + behind > ahead) != is_winner:
            handicap = np.nextafter(handicap, np.float32(0.0 if is_winner else -100.0))
        logits = torch.full((1000,), -math.inf)
        logits[0], logits[rival] = 0.0, float(handicap)
        assert draw([logits], [plain_draw(seed)]) == [rival if is_winner else 0]
        races += 1
    assert races > 100


def test_ids_with_the_same_logit_and_the_same_word_go_to_the_lower_id():
    ties = 0
    for seed in range(12):
        words = noise_words(NoiseKey(seed, 0, 0), np.arange(VOCAB))
        order = np.argsort(words, kind="stable")
        for place in np.flatnonzero(np.diff(words[order]) == 0):
            lower, higher = order[place : place + 2].tolist()
            logits = torch.full((VOCAB,), -math.inf)
            logits[[lower, higher]] = 1.0
            assert draw([logits], [plain_draw(seed)]) == [lower]
            ties += 1
    assert ties > 0


@pytest.mark.parametrize("scale", [0.0, 1.0, 3.0, 10.0])
def test_a_whole_vocabulary_is_drawn_as_if_every_score_were_computed(scale: float):
    generator = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(VOCAB, generator=generator)
    draws = [plain_draw(seed, temperature) for seed in range(8) for temperature in (0.5, 1.0, 2.0)]

    expected = [draw_reference(logits.numpy(), how) for how in draws]

    assert draw([logits] * len(draws), draws) == expected


@pytest.mark.parametrize("top_k", [1, 5, 6, 64, 65])
def test_top_k_is_right_where_whole_blocks_of_ids_hold_one_candidate_each(top_k: int):
    logits = torch.full((256 * 70,), -math.inf)
    ranks = [27 * block % 70 for block in range(70)]
    logits[::256] = torch.tensor(ranks) / 7.0
    draws = [replace(plain_draw(seed, temperature=50.0), top_k=top_k) for seed in range(400)]

    seen = set(draw([logits] * len(draws), draws))

    assert seen <= {256 * block for block in range(70) if ranks[block] >= 70 - top_k}
    assert len(seen) > 0.9 * top_k

"""The walk over candidates: what it chooses, against plain arithmetic written out again."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dflash.drafters.base import DraftRow
from dflash.drafters.walk import Scoring, Selector, WalkInput, walk_reference
from dflash.kernels.draw import Draw, draw_reference
from dflash.noise import NoiseKey, gumbel_noise


def row(num_drafts, anchor=7, position=40, temperature=0.0, seed=5, choice=0) -> DraftRow:
    return DraftRow(anchor, position, (), num_drafts, temperature, seed, choice)


def scoring(num_candidates=16, multiplier=1.0, softcap=None, target_ids=None, selector=None):
    return Scoring(num_candidates, multiplier, softcap, target_ids, selector)


def random_case(seed, vocab=60, slots=9, rank=5, columns=None):
    generator = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    selector = Selector(normal(vocab, rank), normal(vocab, rank))
    return normal(slots, columns or vocab), normal(slots, rank), selector


def longhand(request: WalkInput) -> list[tuple[int, ...]]:
    """The rule once more, in float64 and one candidate at a time."""
    drafts, slot = [], 0
    for each in request.rows:
        previous, chosen = each.anchor, []
        for step in range(each.num_drafts):
            previous = longhand_choice(
                request, slot + step, previous, each, each.position + step + 1
            )
            chosen.append(previous)
        drafts.append(tuple(chosen))
        slot += each.num_drafts
    return drafts


def longhand_choice(request, slot, previous, each, position) -> int:
    how = request.scoring
    logits = request.logits[slot].tolist()
    best = sorted(range(len(logits)), key=lambda column: (-logits[column], column))
    ranked = []
    for column in best[: how.num_candidates]:
        token_id = column if how.target_ids is None else int(how.target_ids[column])
        score = logits[column] * how.multiplier
        if how.softcap is not None:
            score = how.softcap * math.tanh(score / how.softcap)
        if how.selector is not None:
            gate = how.selector.predecessors[previous] * request.states[slot]
            score += float((gate * how.selector.successors[token_id]).double().sum())
        if each.temperature > 0:
            key = NoiseKey(each.seed, each.choice, position)
            score = score / each.temperature + float(gumbel_noise(key, np.array([token_id]))[0])
        ranked.append((-score, token_id))
    return min(ranked)[1]


def test_the_published_vector_of_the_selector():
    z = published_hidden_states()
    ids, j, c = torch.arange(20.0), torch.arange(4.0), torch.arange(32.0)
    selector = Selector(torch.sin(ids[:, None] + 0.5 * j), torch.cos(0.7 * ids[:, None] + 0.3 * j))
    states = z @ (0.1 * torch.sin(j[:, None] + 0.4 * c)).T
    logits = torch.sin(1.3 * ids + torch.arange(3.0)[:, None])

    request = WalkInput(logits, states, [row(3)], scoring(3, selector=selector))

    assert walk_reference(request) == [(11, 5, 14)]
    alone = WalkInput(logits, None, [row(3)], scoring(3))
    assert walk_reference(alone) == [(6, 15, 19)]


def published_hidden_states() -> torch.Tensor:
    """The end of the published vector of the convolution, computed anew in float64."""
    t, c = torch.arange(3.0, dtype=torch.float64), torch.arange(32.0, dtype=torch.float64)
    x = torch.sin(0.37 * t[:, None] + 0.11 * c)
    rows = torch.arange(8.0, dtype=torch.float64)
    kernels = (x @ (0.02 * torch.sin(0.5 * rows[:, None] + 0.2 * c)).T).view(3, 2, 2, 2)
    kernels = kernels.repeat_interleave(16, dim=-1)

    def side(values, s):
        out = torch.zeros_like(values)
        for tap in range(2):
            base = float(tap == 0) + 0.01 * torch.cos(s + 2 * tap + 0.3 * c)
            for slot in range(tap, 3):
                out[slot] += (base + kernels[slot, s, tap]) * values[slot - tap]
        return out

    return side(2 * side(x, 0), 1).float()


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_walk_is_the_rule_written_out(seed, temperature):
    logits, states, selector = random_case(seed)
    rows = [
        row(4, anchor=3, temperature=temperature, seed=seed),
        row(1, anchor=8, temperature=temperature, seed=1 << 63, choice=2),
        row(4, anchor=0, position=0, temperature=temperature, seed=seed),
    ]
    for how in (
        scoring(selector=selector),
        scoring(3, multiplier=0.2, softcap=1.5, selector=selector),
    ):
        request = WalkInput(logits, states, rows, how)
        assert walk_reference(request) == longhand(request)
    request = WalkInput(logits, None, rows, scoring(softcap=0.5))
    assert walk_reference(request) == longhand(request)


def test_a_reduced_head_speaks_in_target_ids():
    ids = torch.arange(20) * 3 + 1
    logits, states, selector = random_case(3, columns=20)
    request = WalkInput(
        logits, states, [row(9, temperature=1.0)], scoring(target_ids=ids, selector=selector)
    )

    (draft,) = walk_reference(request)

    assert (draft,) == tuple(longhand(request))
    assert set(draft) <= set(ids.tolist())


def test_rows_of_a_temperature_and_greedy_rows_do_not_touch_each_other():
    logits, states, selector = random_case(1)
    rows = [row(3), row(4, temperature=1.0, seed=9), row(2, anchor=2)]
    together = walk_reference(WalkInput(logits, states, rows, scoring(selector=selector)))

    first = 0
    for each, draft in zip(rows, together, strict=True):
        last = first + each.num_drafts
        own = WalkInput(logits[first:last], states[first:last], [each], scoring(selector=selector))
        assert walk_reference(own) == [draft]
        first = last


def test_fewer_drafts_are_a_prefix_of_more():
    logits, states, selector = random_case(2)
    for temperature in (0.0, 1.0):
        long, short = row(9, temperature=temperature), row(4, temperature=temperature)
        how = scoring(selector=selector)
        (whole,) = walk_reference(WalkInput(logits, states, [long], how))
        (part,) = walk_reference(WalkInput(logits[:4], states[:4], [short], how))
        assert part == whole[:4]


def test_the_drafter_draws_with_the_noise_that_the_target_draws_with():
    # With the target's own logits and all ids as candidates the two draws are one.
    logits = random_case(4, vocab=16)[0]
    drafted = walk_reference(WalkInput(logits, None, [row(9, temperature=0.8, seed=77)], scoring()))

    chosen = [
        draw_reference(logits[slot].numpy(), Draw(NoiseKey(77, 0, 41 + slot), 0.8, 0, 1.0, 0.0))
        for slot in range(9)
    ]
    assert drafted == [tuple(chosen)]


@pytest.mark.parametrize("target_ids", [None, torch.arange(40) + 100])
def test_ties_among_logits_and_among_scores_go_to_the_lower_id(target_ids):
    logits = torch.zeros(1, 40)
    logits[0, [9, 30]] = 1.0
    # 2 places are taken, the 3rd is tied among 38 columns, and the scores of 9 and 30 are equal.
    how = scoring(3, target_ids=target_ids)
    shift = 0 if target_ids is None else 100

    assert walk_reference(WalkInput(logits, None, [row(1)], how)) == [(9 + shift,)]
    flat = WalkInput(torch.zeros(1, 40), None, [row(1)], how)
    assert walk_reference(flat) == [(shift,)]


def test_the_last_candidate_among_equals_is_the_lowest_id():
    logits = torch.zeros(1, 6)
    logits[0, 5] = 1.0
    selector = Selector(torch.ones(6, 1), torch.tensor([[0.0], [9.0], [9.0], [0.0], [0.0], [0.0]]))
    # Of five equal columns only 0 is a candidate beside 5, so neither 1 nor 2 can be chosen.
    request = WalkInput(logits, torch.ones(1, 1), [row(1, anchor=0)], scoring(2, selector=selector))

    assert walk_reference(request) == [(5,)]


def test_logits_that_are_not_finite_are_no_candidates():
    logits = torch.zeros(1, 20)
    logits[0, :4] = torch.tensor([math.nan, math.inf, -math.inf, 1.0])

    for temperature in (0.0, 1.0):
        for num_candidates in (1, 16):
            request = WalkInput(
                logits, None, [row(1, temperature=temperature)], scoring(num_candidates)
            )
            ((chosen,),) = walk_reference(request)
            assert chosen >= 3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_slot_with_nothing_finite_ends_its_row_and_no_other(value):
    logits, states, selector = random_case(6)
    for damaged in ("logits", "states"):
        own = {"logits": logits.clone(), "states": states.clone()}
        own[damaged][2] = value
        rows = [row(5), row(4, anchor=1)]
        before = walk_reference(WalkInput(logits, states, rows, scoring(selector=selector)))

        after = walk_reference(WalkInput(**own, rows=rows, scoring=scoring(selector=selector)))

        assert after == [before[0][:2], before[1]]


@given(
    values=st.lists(st.sampled_from([-2.0, -1.0, 0.0, 1.0, 2.0]), min_size=20, max_size=20),
    num_candidates=st.integers(1, 16),
)
def test_candidates_are_the_first_of_the_sorted_order(values, num_candidates):
    logits = torch.tensor([values])
    order = sorted(range(20), key=lambda column: (-values[column], column))
    for wanted in (0, num_candidates - 1):
        # A selector that lifts one id far above all others tells whether it is a candidate.
        lifted = torch.zeros(20, 1)
        lifted[order[wanted]] = 100.0
        selector = Selector(torch.ones(20, 1), lifted)
        how = scoring(num_candidates, selector=selector)
        request = WalkInput(logits, torch.ones(1, 1), [row(1)], how)
        assert walk_reference(request) == [(order[wanted],)]
    lifted = torch.zeros(20, 1)
    lifted[order[num_candidates]] = 100.0
    how = scoring(num_candidates, selector=Selector(torch.ones(20, 1), lifted))
    request = WalkInput(logits, torch.ones(1, 1), [row(1)], how)
    assert walk_reference(request) == [(order[0],)]


def test_a_codebook_in_bfloat16_is_read_at_full_width():
    logits, states, selector = random_case(8)
    narrow = Selector(selector.predecessors.bfloat16(), selector.successors.bfloat16())
    wide = Selector(narrow.predecessors.float(), narrow.successors.float())
    results = [
        walk_reference(WalkInput(logits, states, [row(9)], scoring(selector=each)))
        for each in (narrow, wide)
    ]

    assert results[0] == results[1]


@pytest.mark.parametrize("temperature", [1e-300, 5e-324])
def test_the_smallest_temperatures_choose_as_greedy_does(temperature):
    logits = random_case(9)[0]
    greedy = walk_reference(WalkInput(logits, None, [row(9)], scoring()))

    assert walk_reference(
        WalkInput(logits, None, [row(9, temperature=temperature)], scoring())
    ) == (greedy)

"""The compiled walk chooses the ids of its numpy twin, whatever the logits hold."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dflash.drafters import compiled_walk as module
from dflash.drafters.base import DraftRow
from dflash.drafters.compiled_walk import walk
from dflash.drafters.walk import Scoring, Selector, WalkInput, walk_reference
from dflash.errors import KernelError
from dflash.kernels.draw_library import draw_library

NUM_IDS = 60_000
COLUMNS = (16, 17, 50, 1000, 16_384, 49_152)
PLAIN = Scoring(16, 1.0, None, None, None)


@pytest.fixture(autouse=True)
def _needs_compiled_kernels():
    if draw_library() is None:
        pytest.skip("no compiled kernels on this machine")


def normal(rng, *shape):
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))


def selector(rng, rank, dtype=torch.bfloat16):
    return Selector(normal(rng, NUM_IDS, rank).to(dtype), normal(rng, NUM_IDS, rank).to(dtype))


def rows_of(rng, counts, temperatures=(0.0, 0.3, 1.0, 2.0)):
    return [
        DraftRow(
            anchor=int(rng.integers(NUM_IDS)),
            position=int(rng.integers(2**31)),
            page_table=(),
            num_drafts=count,
            temperature=temperatures[i % len(temperatures)],
            seed=int(rng.integers(2**64, dtype=np.uint64)),
            choice=int(rng.integers(2**32)),
        )
        for i, count in enumerate(counts)
    ]


def assert_same_ids(request):
    drafts = walk(request)
    assert drafts == walk_reference(request)
    return drafts


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("rank", [0, 1, 32, 100])
def test_random_logits_give_the_ids_of_the_twin(columns, rank):
    rng = np.random.default_rng(columns + rank)
    for dtype in (torch.bfloat16, torch.float32):
        counts = (7, 1, 3, 15, 7)
        scoring = replace(PLAIN, selector=selector(rng, rank, dtype) if rank else None)
        states = 0.3 * normal(rng, sum(counts), rank) if rank else None
        # As a buffer has it: rows wider than what is used of them, and larger numbers behind.
        logits = normal(rng, sum(counts), columns + 32)
        logits[:, columns:] = 100.0
        request = WalkInput(logits[:, :columns], states, rows_of(rng, counts), scoring)

        drafts = assert_same_ids(request)

        assert [len(draft) for draft in drafts] == list(counts)


@pytest.mark.parametrize("num_candidates", [1, 2, 15, 16])
@pytest.mark.parametrize("levels", [1, 2, 5, 40])
def test_ties_at_every_border_go_to_the_lower_id(num_candidates, levels):
    """Whole logits, of few values: ties among candidates, and across the border of their number."""
    rng = np.random.default_rng(levels)
    scoring = replace(PLAIN, num_candidates=num_candidates)
    for columns in (16, 33, 700):
        logits = torch.from_numpy(rng.integers(levels, size=(30, columns)).astype(np.float32))
        logits *= torch.from_numpy(rng.choice([-1.0, 1.0], logits.shape))  # -0 equals 0
        assert_same_ids(WalkInput(logits, None, rows_of(rng, (15, 15)), scoring))


def test_scores_that_the_selector_makes_equal_go_to_the_lower_id():
    """The candidate of the lower logit has the lower id and, with the selector, the same score."""
    logits = torch.full((1, 32), -9.0)
    logits[0, 20], logits[0, 5], logits[0, 6] = 2.0, 1.0, 1.0
    successors = torch.zeros(32, 1)
    successors[5], successors[6] = 1.0, 1.0
    scoring = replace(PLAIN, selector=Selector(torch.ones(32, 1), successors))
    row = DraftRow(3, 10, (), 1, 0.0, 0, 0)

    assert assert_same_ids(WalkInput(logits, torch.ones(1, 1), [row], scoring)) == [(5,)]


def test_every_product_and_sum_is_rounded_by_itself():
    """Fused, the last product would leave the 2**-24 that rounding takes off, and 6 would win."""
    logits = torch.full((1, 32), -9.0)
    logits[0, 5], logits[0, 6] = 0.0, 0.0
    x = 1.0 + 2.0**-12
    successors = torch.zeros(32, 2)
    successors[6] = torch.tensor([-(1.0 + 2.0**-11), x])
    scoring = replace(PLAIN, selector=Selector(torch.tensor([[1.0, x]] * 32), successors))
    row = DraftRow(3, 10, (), 1, 0.0, 0, 0)

    assert assert_same_ids(WalkInput(logits, torch.ones(1, 2), [row], scoring)) == [(5,)]


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.999])
def test_logits_that_are_not_finite_are_no_candidates(bad, share):
    rng = np.random.default_rng(int(1000 * share))
    logits = normal(rng, 21, 3000)
    logits[torch.from_numpy(rng.random((21, 3000)) < share)] = bad
    scoring = replace(PLAIN, selector=selector(rng, 8))

    request = WalkInput(logits, normal(rng, 21, 8), rows_of(rng, (7, 7, 7)), scoring)

    for row, draft in zip(range(3), assert_same_ids(request), strict=True):
        for slot, token_id in enumerate(draft):
            assert logits[7 * row + slot, token_id].isfinite()


def test_a_slot_without_candidates_ends_its_rows_draft_and_no_other():
    rng = np.random.default_rng(0)
    logits = normal(rng, 21, 500)
    logits[0] = float("nan")
    logits[7 + 3] = float("-inf")

    drafts = assert_same_ids(WalkInput(logits, None, rows_of(rng, (7, 7, 7)), PLAIN))

    assert [len(draft) for draft in drafts] == [0, 3, 7]


def test_a_state_or_a_table_that_is_not_finite_ends_the_draft_there():
    rng = np.random.default_rng(1)
    tables = selector(rng, 4, torch.float32)
    states = normal(rng, 14, 4)
    states[2, 1] = float("nan")
    tables.successors[: NUM_IDS // 2] = float("inf")
    logits = normal(rng, 14, NUM_IDS)
    scoring = replace(PLAIN, selector=tables)

    drafts = assert_same_ids(WalkInput(logits, states, rows_of(rng, (7, 7)), scoring))

    assert len(drafts[0]) == 2
    assert min(drafts[0] + drafts[1]) >= NUM_IDS // 2


@pytest.mark.parametrize("multiplier", [1.0, 0.19611613513818404, 1e38])
@pytest.mark.parametrize("softcap", [None, 20.0, 0.5])
def test_logits_are_scaled_and_capped_alike(multiplier, softcap):
    rng = np.random.default_rng(2)
    scoring = Scoring(16, multiplier, softcap, None, selector(rng, 16))
    logits = 8.0 * normal(rng, 35, 2000)

    assert_same_ids(WalkInput(logits, normal(rng, 35, 16), rows_of(rng, (7,) * 5), scoring))


def test_a_reduced_head_gives_target_ids():
    rng = np.random.default_rng(3)
    target_ids = torch.from_numpy(np.sort(rng.choice(NUM_IDS, 900, replace=False)))
    scoring = Scoring(16, 1.0, None, target_ids, selector(rng, 32))

    drafts = assert_same_ids(
        WalkInput(normal(rng, 28, 900), normal(rng, 28, 32), rows_of(rng, (7,) * 4), scoring)
    )

    assert {token_id for draft in drafts for token_id in draft} <= set(target_ids.tolist())


@pytest.mark.parametrize("temperature", [1e-300, 1e-6, 1e6])
def test_extreme_temperatures_choose_alike(temperature):
    rng = np.random.default_rng(4)
    rows = rows_of(rng, (7, 7), (temperature,))

    assert_same_ids(WalkInput(normal(rng, 14, 300), None, rows, PLAIN))


def test_a_row_is_walked_the_same_beside_others():
    rng = np.random.default_rng(5)
    scoring = replace(PLAIN, selector=selector(rng, 32))
    logits, states = normal(rng, 56, 4000), normal(rng, 56, 32)
    rows = rows_of(rng, (7,) * 8)
    together = walk(WalkInput(logits, states, rows, scoring))

    for i, row in enumerate(rows):
        part = slice(7 * i, 7 * i + 7)
        assert walk(WalkInput(logits[part], states[part], [row], scoring)) == [together[i]]


def test_no_rows_give_no_drafts():
    assert walk(WalkInput(torch.empty(0, 40), None, [], PLAIN)) == []


def test_slots_the_compiled_form_cannot_read_are_refused():
    rng = np.random.default_rng(6)
    scoring = replace(PLAIN, selector=selector(rng, 8))
    good = WalkInput(normal(rng, 14, 40), normal(rng, 14, 8), rows_of(rng, (7, 7)), scoring)
    far = replace(good.rows[1], anchor=NUM_IDS)

    for broken, message in (
        (replace(good, logits=good.logits.double()), "logits are torch.float64"),
        (replace(good, logits=normal(rng, 40, 14).T), "contiguous float32"),
        (replace(good, logits=good.logits[:13]), "here 14"),
        (replace(good, states=normal(rng, 13, 8)), "states are torch.float32"),
        (replace(good, rows=[good.rows[0], far]), "anchor is 60000; the selector has ids 0 to"),
    ):
        with pytest.raises(KernelError, match=message):
            walk(broken)


def test_numpy_walks_where_nothing_is_compiled(monkeypatch):
    rng = np.random.default_rng(7)
    request = WalkInput(normal(rng, 7, 100), None, rows_of(rng, (7,)), PLAIN)
    compiled = walk(request)
    monkeypatch.setattr(module, "draw_library", lambda: None)

    assert walk(request) == compiled

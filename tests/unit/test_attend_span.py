"""Attention over a part of a sequence: from its first position with keys on, within a window."""

from dataclasses import replace

import pytest
import torch

from dflash.batch import Run, batch_from_runs
from dflash.kernels.torch_forms import PaddedRuns
from dflash.program import Attend
from tests.rigs.draft_operations import (
    NUM_PAGES,
    Case,
    copied,
    random_pages,
    random_rows,
    shape_of,
)

DTYPES = [torch.float32, torch.bfloat16]
SPANS = [(0, None), (1, None), (0, 1), (1, 16), (0, 17), (1, 33), (17, None)]
# Rows begin behind the last of the first positions above; runs of one and of several.
RUNS = [
    Run((0,), 17, (4, 9), 0),
    Run((0,) * 20, 18, (3, 1, 7), 0),
    Run((0,), 47, (5, 2, 8), 0),
    Run((0,) * 3, 256, tuple(range(10, 27)), 0),
]


def case_of(first, window):
    shape = shape_of(6, 2, 64)
    operation = Attend("qkv", "attended", 0, first, window)
    return Case([operation], {"qkv": shape.qkv_width}, {"attended": 6 * 64}, shape=shape)


def batch_of(case, dtype):
    batch = batch_from_runs(RUNS)
    return replace(batch, features=random_rows(batch.num_tokens, case.width).to(dtype))


def plainly(pages, queries, batch, first, window):
    """Each row by itself over the keys it sees, in float64."""
    rows = []
    for row, position in enumerate(batch.positions.tolist()):
        table = batch.page_tables[batch.run_of_token[row], : position // 16 + 1].long()
        lowest = max(first, 0 if window is None else position - window + 1)
        keys = pages.keys[0, table].permute(1, 2, 0, 3).flatten(2)[..., lowest : position + 1]
        values = pages.values[0, table].transpose(0, 1).flatten(1, 2)[:, lowest : position + 1]
        query = queries[row, : 6 * 64].double().view(2, 3, 64) / 8
        weights = (query @ keys.double()).softmax(dim=-1)
        rows.append((weights @ values.double()).flatten())
    return torch.stack(rows)


@pytest.mark.parametrize(("first", "window"), SPANS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_form_attends_to_the_same_span(first, window, dtype):
    case = case_of(first, window)
    batch, pages = batch_of(case, dtype), random_pages(case.shape, dtype)
    expected = plainly(pages, batch.features, batch, first, window)

    compiled = case.native(copied(pages)).run(batch)["attended"]
    reference = case.torch(copied(pages)).run(batch)["attended"]
    queries = batch.features[:, : 6 * 64].unflatten(1, (6, 64))
    keys, values = pages.keys[0], pages.values[0]
    padded = PaddedRuns().attended(case.operations[0], queries, keys, values, batch)

    near = {"rtol": 0, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2**-7, "atol": 4e-3}
    torch.testing.assert_close(compiled.double(), expected, **near)
    torch.testing.assert_close(reference.double(), expected, **near)
    near = near if dtype == torch.float32 else {"rtol": 2**-5, "atol": 2e-2}
    torch.testing.assert_close(padded.double(), expected, **near)


@pytest.mark.parametrize(("first", "window"), SPANS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nothing_outside_the_span_is_read(first, window, dtype):
    case = case_of(first, window)
    batch, pages = batch_of(case, dtype), random_pages(case.shape, dtype)
    expected = case.native(copied(pages)).run(batch)["attended"].clone()
    read = torch.zeros(NUM_PAGES, 16, dtype=torch.bool)
    for run in RUNS:
        for position in range(run.start, run.start + len(run.token_ids)):
            lowest = max(first, 0 if window is None else position - window + 1)
            for seen in range(lowest, position + 1):
                read[run.page_table[seen // 16], seen % 16] = True

    foreign = copied(pages)
    foreign.keys.permute(0, 2, 3, 1, 4)[..., ~read] = float("nan")
    foreign.values.permute(0, 2, 4, 1, 3)[..., ~read] = float("nan")

    assert torch.equal(case.native(foreign).run(batch)["attended"], expected)

"""A draft block's numbers depend on its own rows and context alone: no bit from its neighbours."""

import itertools
from dataclasses import replace

import pytest
import torch

from dflash.batch import Run, batch_from_runs
from dflash.program import (
    AttendBlock,
    Convolve,
    Epilogue,
    HeadNorm,
    RotateAndStore,
    RotateAndStoreBlock,
)
from tests.rigs.draft_operations import (
    NUM_PAGES,
    Case,
    blocks,
    copied,
    random_pages,
    random_rows,
    shape_of,
)

FORMS = ["compiled fp32", "compiled bf16", "compiled bf16, 2 threads", "torch fp32", "torch bf16"]
SHAPE = shape_of(6, 2, 64)
CHANNELS = 96
OWN_START, OWN_TABLE = 41, (3, 17, 8)
OTHER_STARTS = (0, 1, 16, 33, 64, 5, 40, 41, 15, 90, 17, 2, 31, 48, 7)
OTHER_TABLES = [range(20 + i, 26 + i) for i in range(len(OTHER_STARTS))]


def dtype_of(form):
    return torch.bfloat16 if "bf16" in form else torch.float32


def executor_of(form, case, pages):
    if form.startswith("torch"):
        return case.torch(pages)
    return case.native(pages, num_threads=2 if "2 threads" in form else 1)


def draft_case(window=None, is_causal=False):
    """Every operation of a draft block, each reading what the one before it wrote."""
    return Case(
        [
            HeadNorm("qkv", "q norm", 0, 6, 1e-6),
            HeadNorm("qkv", "k norm", 6, 2, 1e-6),
            RotateAndStoreBlock("qkv", 0),
            AttendBlock("qkv", "attended", 0, window, is_causal),
            Convolve("src", "kernel", "base", "prepared", 0),
            Convolve("src", "kernel", "base", "prepared", 1, Epilogue.ADD),
        ],
        {"qkv": SHAPE.qkv_width, "src": CHANNELS, "kernel": 4 * CHANNELS // 16},
        {"attended": 6 * 64, "prepared": CHANNELS},
        {
            "q norm": 1.0 + 0.1 * random_rows(64, seed=1),
            "k norm": 1.0 + 0.1 * random_rows(64, seed=2),
            "base": 0.3 * random_rows(2, 2, CHANNELS, seed=3),
        },
        SHAPE,
    )


def own_and_others(case, size, dtype, count):
    """Rows of our block and of some others, ours first."""
    rows = random_rows((1 + count) * size, case.width, seed=size).to(dtype)
    return rows.split(size)


def results(executor, order, parts, size):
    """Outputs of the block with number 0 in a batch of these blocks, in this order."""
    starts, tables = (OWN_START, *OTHER_STARTS), (OWN_TABLE, *OTHER_TABLES)
    batch = blocks(
        [starts[i] for i in order],
        [tables[i] for i in order],
        size,
        torch.cat([parts[i] for i in order]),
    )
    place = list(order).index(0)
    outputs = executor.run(batch)
    return [outputs[name][place * size : (place + 1) * size].clone() for name in sorted(outputs)]


def assert_same_bits(got, expected):
    for one, other in zip(got, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", range(1, 17))
def test_a_block_is_the_same_beside_any_neighbours_in_any_place(form, size):
    case = draft_case()
    executor = executor_of(form, case, random_pages(SHAPE, dtype_of(form)))
    parts = own_and_others(case, size, dtype_of(form), len(OTHER_STARTS))
    alone = results(executor, (0,), parts, size)

    for count, place in ((1, 0), (1, 1), (3, 2), (7, 0), (7, 7), (15, 4)):
        order = [*range(1, count + 1)]
        order.insert(place, 0)
        assert_same_bits(results(executor, order, parts, size), alone)


@pytest.mark.parametrize("form", FORMS)
def test_a_block_is_the_same_in_every_order_of_the_batch(form):
    case = draft_case(window=20, is_causal=True)
    executor = executor_of(form, case, random_pages(SHAPE, dtype_of(form)))
    parts = own_and_others(case, 8, dtype_of(form), 3)
    alone = results(executor, (0,), parts, 8)

    for order in itertools.permutations(range(4)):
        assert_same_bits(results(executor, order, parts, 8), alone)


@pytest.mark.parametrize("form", FORMS[:3])
@pytest.mark.parametrize("window", [None, 30])
def test_a_neighbour_that_is_not_a_number_spoils_only_itself(form, window):
    case = draft_case(window)
    executor = executor_of(form, case, random_pages(SHAPE, dtype_of(form)))
    parts = list(own_and_others(case, 8, dtype_of(form), 2))
    alone = results(executor, (0,), parts, 8)
    parts[1] = torch.full_like(parts[1], float("nan"))

    assert_same_bits(results(executor, (1, 0, 2), parts, 8), alone)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", range(1, 17))
def test_context_rows_are_the_same_together_and_one_by_one(form, count):
    """What a drafter's context is written with: norm of the keys, then rotation and store."""
    shape = shape_of(0, 2, 64)
    weights = {"k norm": 1.0 + 0.1 * random_rows(64, seed=2)}
    case = Case(
        [HeadNorm("kv", "k norm", 0, 2, 1e-6), RotateAndStore("kv", 0)],
        {"kv": shape.qkv_width},
        {},
        weights,
        shape,
    )
    dtype = dtype_of(form)
    rows = random_rows(count, case.width, seed=count).to(dtype)
    empty = random_pages(shape, dtype)
    together, one_by_one = copied(empty), copied(empty)

    def write(pages, start, end):
        run = Run((0,) * (end - start), 11 + start, (5, 2), 0)
        batch = replace(batch_from_runs([run]), features=rows[start:end])
        executor_of(form, case, pages).run(batch)

    write(together, 0, count)
    for row in range(count):
        write(one_by_one, row, row + 1)

    assert torch.equal(together.keys, one_by_one.keys)
    assert torch.equal(together.values, one_by_one.values)
    assert not torch.equal(together.keys, empty.keys)


@pytest.mark.parametrize("form", FORMS[:3])
def test_which_scratch_page_a_block_has_does_not_matter(form):
    """A block's page follows its place in the batch; what others left there is never read."""
    case = draft_case()
    pages = random_pages(SHAPE, dtype_of(form))
    executor = executor_of(form, case, pages)
    parts = own_and_others(case, 8, dtype_of(form), 1)
    alone = results(executor, (0,), parts, 8)

    pages.keys[:, NUM_PAGES - 2 :] = float("nan")
    pages.values[:, NUM_PAGES - 2 :] = float("nan")

    assert_same_bits(results(executor, (1, 0), parts, 8), alone)

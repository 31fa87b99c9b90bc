"""The compiled operations of draft blocks compute what the torch reference computes."""

from dataclasses import replace

import pytest
import torch

from dflash.batch import Run, batch_from_runs
from dflash.errors import KernelError
from dflash.kernels.torch_drafts import convolved
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

DTYPES = [torch.float32, torch.bfloat16]
# Around the borders of a page of 16 tokens, and far past them.
STARTS = (0, 1, 15, 16, 17, 31, 32, 33, 255, 256, 257)
TABLES = [
    tuple((7 * run + 5 * i) % (NUM_PAGES - len(STARTS)) for i in range(-(-start // 16)))
    for run, start in enumerate(STARTS)
]
SHAPES = [(2, 1, 32), (9, 3, 64), (4, 4, 64), (8, 1, 96), (5, 1, 128), (2, 1, 256)]


def assert_close(compiled, reference, dtype):
    """One operation: float32 sums in another order, rounded once to the type."""
    wide, expected = compiled.float(), reference.float()
    if dtype == torch.float32:
        assert torch.allclose(wide, expected, rtol=0, atol=1e-5)
    else:
        assert torch.allclose(wide, expected, rtol=2**-7, atol=2e-3)


def both(case, batch, dtype):
    """Run the case in both forms on like pages; return their outputs and their pages."""
    pages = random_pages(case.shape, dtype)
    own, reference_pages = copied(pages), copied(pages)
    compiled = {n: rows.clone() for n, rows in case.native(own).run(batch).items()}
    reference = case.torch(reference_pages).run(batch)
    return (compiled, own), (reference, reference_pages)


def attend_case(shape, window, is_causal):
    operation = AttendBlock("qkv", "attended", 0, window, is_causal)
    width = shape.num_heads * shape.head_dim
    return Case([operation], {"qkv": shape.qkv_width}, {"attended": width}, shape=shape)


def attend_batch(case, size, dtype):
    rows = random_rows(len(STARTS) * size, case.width, seed=size).to(dtype)
    return blocks(STARTS, TABLES, size, rows)


def check_attention(shape, size, dtype, windows):
    for window in windows:
        for is_causal in (False, True):
            case = attend_case(shape, window, is_causal)
            batch = attend_batch(case, size, dtype)
            (compiled, _), (reference, _) = both(case, batch, dtype)
            assert compiled["attended"].isfinite().all()
            assert_close(compiled["attended"], reference["attended"], dtype)


@pytest.mark.parametrize("size", range(1, 17))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_block_of_any_size_attends_to_every_context_and_window(size, dtype):
    check_attention(shape_of(6, 2, 64), size, dtype, (None, 1, 2, 8, 15, 16, 17, 31, 33, 200))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_grouped_heads_of_every_width_attend(shape, dtype):
    for size in (1, 8, 16):
        check_attention(shape_of(*shape), size, dtype, (None, 17))


@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_block_reads_its_own_context_and_scratch_slots_only(window, dtype):
    size, case = 5, attend_case(shape_of(6, 2, 64), window, is_causal=False)
    batch = attend_batch(case, size, dtype)
    pages = random_pages(case.shape, dtype)
    expected = case.native(copied(pages)).run(batch)["attended"].clone()
    read = torch.zeros(NUM_PAGES, 16, dtype=torch.bool)
    for run, (start, table) in enumerate(zip(STARTS, TABLES, strict=True)):
        first = 0 if window is None else max(0, start - window + 1)
        for position in range(first, start):
            read[table[position // 16], position % 16] = True
        read[NUM_PAGES - 1 - run, :size] = True

    foreign = copied(pages)
    foreign.keys.permute(0, 2, 3, 1, 4)[..., ~read] = float("nan")
    foreign.values.permute(0, 2, 4, 1, 3)[..., ~read] = float("nan")

    assert torch.equal(case.native(foreign).run(batch)["attended"], expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_block_is_rotated_and_stored_in_its_scratch_page(shape, dtype):
    shape = shape_of(*shape)
    case = Case(
        [RotateAndStoreBlock("qkv", 0)],
        {"qkv": shape.qkv_width},
        {"qkv": shape.qkv_width},
        shape=shape,
    )
    for size in (1, 7, 8, 16):
        batch = attend_batch(case, size, dtype)
        before = random_pages(shape, dtype)
        (compiled, own), (reference, reference_pages) = both(case, batch, dtype)

        assert_close(compiled["qkv"], reference["qkv"], dtype)
        assert_close(own.keys, reference_pages.keys, dtype)
        assert torch.equal(own.values, reference_pages.values)
        changed = (own.keys != before.keys).any(dim=3).any(dim=2).any(dim=0)
        expected = torch.zeros_like(changed)
        expected[NUM_PAGES - len(STARTS) :, :size] = True
        assert torch.equal(changed, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_keys_and_values_are_stored_where_there_are_no_queries(dtype):
    shape = shape_of(0, 2, 64)
    width = shape.qkv_width
    case = Case([RotateAndStore("kv", 0)], {"kv": width}, {"kv": width}, shape=shape)
    runs = [Run((0,) * 21, 3, (4, 9), 0), Run((0,), 40, (1, 2, 3), 0)]
    batch = replace(batch_from_runs(runs), features=random_rows(22, width).to(dtype))

    (_, own), (_, reference) = both(case, batch, dtype)

    assert_close(own.keys, reference.keys, dtype)
    assert torch.equal(own.values, reference.values)


@pytest.mark.parametrize("head_dim", [32, 64, 96, 128, 256])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_only_the_asked_heads_are_normed(head_dim, dtype):
    shape = shape_of(6, 2, head_dim)
    weights = {"norm": 1.0 + 0.1 * random_rows(head_dim)}
    rows = 3.0 * random_rows(19, shape.qkv_width)
    for first, count in ((0, 6), (6, 2), (0, 8), (3, 1)):
        case = Case(
            [HeadNorm("qkv", "norm", first, count, 1e-6)],
            {"qkv": shape.qkv_width},
            {"qkv": shape.qkv_width},
            weights,
            shape,
        )
        batch = replace(batch_from_runs([Run((0,) * 19, 0, (0, 1), 0)]), features=rows.to(dtype))
        (compiled, _), (reference, _) = both(case, batch, dtype)

        assert_close(compiled["qkv"], reference["qkv"], dtype)
        heads = compiled["qkv"].view(19, 10, head_dim)
        given = rows.to(dtype).view(19, 10, head_dim)
        untouched = [head for head in range(10) if not first <= head < first + count]
        assert torch.equal(heads[:, untouched], given[:, untouched])


def convolve_case(channels, side, epilogue, dst="convolved"):
    base = 0.3 * random_rows(2, 2, channels, seed=3)
    return Case(
        [Convolve("src", "kernel", "base", dst, side, epilogue)],
        {"src": channels, "kernel": 4 * (channels // 16), "convolved": channels},
        {dst: channels},
        {"base": base},
    )


@pytest.mark.parametrize("channels", [16, 48, 576])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("epilogue", [Epilogue.STORE, Epilogue.ADD])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_both_forms_convolve_blocks_of_any_size_alike(channels, side, epilogue, dtype):
    case = convolve_case(channels, side, epilogue)
    for size in (1, 2, 7, 8, 16):
        rows = random_rows(3 * size, case.width, seed=size).to(dtype)
        batch = blocks((0, 0, 0), ((), (), ()), size, rows)
        (compiled, _), (reference, _) = both(case, batch, dtype)
        assert_close(compiled["convolved"], reference["convolved"], dtype)


def test_a_convolution_starts_anew_in_every_block():
    generator = torch.Generator().manual_seed(0)
    rows, kernels = (torch.randn(8, width, generator=generator) for width in (32, 4))
    base = torch.randn(2, 32, generator=generator)

    whole = convolved(rows, kernels, base, 4)

    for first in (0, 4):
        own = slice(first, first + 4)
        assert torch.equal(whole[own], convolved(rows[own], kernels[own], base, 4))


def test_rows_can_be_convolved_in_place():
    apart, in_place = (convolve_case(48, 0, Epilogue.STORE, dst) for dst in ("convolved", "src"))
    rows = random_rows(16, apart.width)
    batch = blocks((0, 0), ((), ()), 8, rows)

    expected = both(apart, batch, torch.float32)[0][0]["convolved"]

    assert torch.equal(both(in_place, batch, torch.float32)[0][0]["src"], expected)


def test_the_published_vector_of_the_convolution():
    """Both sides around a sublayer that doubles: numbers of dflash2.md section 4."""
    slot, channel = torch.arange(3.0)[:, None], torch.arange(32.0)
    x = torch.sin(0.37 * slot + 0.11 * channel)
    side, tap = torch.arange(2.0)[:, None, None], torch.arange(2.0)[:, None]
    base = (tap == 0) + 0.01 * torch.cos(side + 2 * tap + 0.3 * channel)
    projection = 0.02 * torch.sin(0.5 * torch.arange(8.0)[:, None] + 0.2 * channel)
    kernel = x @ projection.T

    def convolve(side, rows):
        case = replace(convolve_case(32, side, Epilogue.STORE), weights={"base": base})
        features = torch.cat([rows, kernel, torch.zeros_like(rows)], dim=1)
        batch = blocks((0,), ((),), 3, features)
        return both(case, batch, torch.float32)[0][0]["convolved"]

    y = convolve(0, x)
    z = convolve(1, 2 * y)

    assert y[1, 0].item() == pytest.approx(0.41673835, abs=1e-6)
    assert y[2, 31].item() == pytest.approx(-0.92095616, abs=1e-6)
    expected = [(0, 31, -0.43842797), (1, 0, 0.68840099), (1, 31, -0.91362889)]
    expected += [(2, 0, 1.19877545), (2, 16, 0.70564476), (2, 31, -1.20549095)]
    for row, at, value in expected:
        assert z[row, at].item() == pytest.approx(value, abs=1e-6)
    assert z.sum().item() == pytest.approx(69.74918239, abs=1e-4)


def test_features_are_taken_from_rows_that_lie_apart():
    case = Case([], {"taken": 24}, {"taken": 24})
    wide = random_rows(40, 100)
    batch = replace(batch_from_runs([Run((0,) * 40, 0, (0, 1, 2), 0)]), features=wide[:, 5:29])

    taken = case.native(random_pages(case.shape, torch.float32)).run(batch)["taken"]

    assert torch.equal(taken, wide[:, 5:29])


def test_a_batch_that_does_not_fit_the_program_is_refused():
    attend = attend_case(shape_of(2, 1, 32), None, is_causal=False)
    executor = attend.native(random_pages(attend.shape, torch.float32))
    good = attend_batch(attend, 8, torch.float32)
    assert good.features is not None

    for broken, message in (
        (replace(good, block_size=0), "block_size is 0 with 88 tokens in 11 runs"),
        (replace(good, block_size=4), "all of block_size"),
        (replace(good, block_size=88), "1 to 16 slots"),
        (replace(good, features=None), "the batch has none"),
        (replace(good, features=good.features[:, 1:]), "features are torch.float32"),
        (replace(good, features=good.features.bfloat16()), "takes torch.float32"),
    ):
        with pytest.raises(KernelError, match=message):
            executor.run(broken)

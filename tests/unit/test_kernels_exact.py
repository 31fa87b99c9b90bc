"""A row's numbers depend on its own sequence up to its position, and on nothing else: no bit."""

import itertools
import random

import pytest
import torch

from dflash.batch import Run, batch_from_runs
from tests.rigs.tiny_executor import (
    NUM_PAGES,
    logits_of,
    native_executor,
    random_weights,
    tiny_config,
    torch_executor,
)

FORMS = ["compiled fp32", "compiled bf16", "compiled bf16, 2 threads", "torch fp32", "torch bf16"]
IDS = tuple(random.Random(0).choices(range(80), k=600))
OWN_PAGES = tuple(random.Random(1).sample(range(40), 40))
OTHER_PAGES = tuple(range(40, 160))


def executor_of(form, **shape):
    config = tiny_config(**shape)
    dtype = torch.bfloat16 if "bf16" in form else torch.float32
    if form.startswith("torch"):
        return torch_executor(config, dtype)
    return native_executor(config, dtype, num_threads=2 if "2 threads" in form else 1)


def own(start, end, num_logits=None):
    count = end - start if num_logits is None else num_logits
    return Run(IDS[start:end], start, OWN_PAGES, count)


def alone(executor, start, end):
    """Logits of each position, computed a token at a time with nobody else."""
    rows = [logits_of(executor, batch_from_runs([own(i, i + 1)])) for i in range(start, end)]
    return torch.cat(rows)


def prefill(executor, length):
    if length:
        executor.forward(batch_from_runs([own(0, length, 0)]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", range(1, 17))
def test_a_block_of_any_length_equals_its_tokens_one_by_one(form, count):
    executor = executor_of(form)
    prefill(executor, 20)

    single = alone(executor, 20, 20 + count)
    block = logits_of(executor, batch_from_runs([own(20, 20 + count)]))

    assert torch.equal(block, single)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("context", [1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129])
def test_a_row_is_the_same_in_a_block_at_every_context_length(form, context):
    executor = executor_of(form)
    prefill(executor, context - 1)
    end = context + 5

    single = alone(executor, context - 1, end)
    block = logits_of(executor, batch_from_runs([own(context - 1, end)]))

    assert torch.equal(block, single)


@pytest.mark.parametrize("context", [255, 256, 257, 511, 512, 513])
@pytest.mark.parametrize("form", FORMS[:2])
def test_a_row_is_the_same_in_a_block_at_long_contexts(form, context):
    executor = executor_of(form)
    prefill(executor, context - 1)

    single = alone(executor, context - 1, context + 2)
    block = logits_of(executor, batch_from_runs([own(context - 1, context + 2)]))

    assert torch.equal(block, single)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "shape",
    [
        {"num_heads": 4, "num_kv_heads": 2},
        {"num_heads": 8, "num_kv_heads": 1},
        {"head_dim": 128, "num_heads": 2, "num_kv_heads": 2},
        {"head_dim": 96, "num_heads": 3, "num_kv_heads": 1},
    ],
    ids=str,
)
def test_grouped_heads_of_every_width_are_the_same_in_a_block(form, shape):
    executor = executor_of(form, **shape)
    prefill(executor, 18)

    single = alone(executor, 18, 26)
    block = logits_of(executor, batch_from_runs([own(18, 26)]))

    assert torch.equal(block, single)


@pytest.mark.parametrize("form", FORMS)
def test_a_prompt_is_the_same_in_every_cut_into_chunks(form):
    executor = executor_of(form)
    whole = logits_of(executor, batch_from_runs([own(0, 40)]))

    for cuts in ([0, 1, 40], [0, 39, 40], [0, 7, 16, 33, 40], [0, 16, 32, 40], [0, *range(5, 41)]):
        for start, end in itertools.pairwise(cuts):
            chunk = logits_of(executor, batch_from_runs([own(start, end)]))
            assert torch.equal(chunk, whole[start:end])


@pytest.mark.parametrize("form", FORMS)
def test_a_row_is_the_same_in_every_order_of_a_mixed_batch(form):
    executor = executor_of(form)
    prefill(executor, 20)
    expected = alone(executor, 20, 24)
    others = [
        Run(IDS[100:137], 0, OTHER_PAGES[:3], 1),
        Run(IDS[200:201], 0, OTHER_PAGES[3:4], 1),
        Run(IDS[300:310], 0, OTHER_PAGES[4:5], 0),
    ]

    for order in itertools.permutations([own(20, 24), *others]):
        logits = logits_of(executor, batch_from_runs(order))
        first = sum(run.num_logits for run in order[: order.index(own(20, 24))])
        assert torch.equal(logits[first : first + 4], expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("neighbours", [1, 2, 4, 7, 14, 30, 32, 63])
def test_a_row_is_the_same_beside_any_number_of_neighbours(form, neighbours):
    executor = executor_of(form)
    prefill(executor, 20)
    expected = alone(executor, 20, 21)
    others = [Run(IDS[i : i + 1], 0, OTHER_PAGES[i : i + 1], 1) for i in range(neighbours)]

    logits = logits_of(executor, batch_from_runs([*others, own(20, 21)]))

    assert torch.equal(logits[-1:], expected)


@pytest.mark.parametrize("form", FORMS)
def test_what_other_pages_and_unused_slots_hold_does_not_matter(form):
    executor = executor_of(form)
    prefill(executor, 20)
    expected = alone(executor, 20, 21)
    pages = executor._pages
    kept = list(OWN_PAGES[:2])
    foreign = [page for page in range(NUM_PAGES) if page not in kept]

    pages.keys[:, foreign] = float("nan")
    pages.values[:, foreign] = float("nan")
    pages.keys[:, kept[1], :, :, 5:] = float("nan")  # positions 21 to 31 of the second page
    pages.values[:, kept[1], :, 5:] = float("nan")

    assert torch.equal(alone(executor, 20, 21), expected)


@pytest.mark.parametrize("form", FORMS)
def test_a_step_writes_its_own_slots_and_nothing_else(form):
    executor = executor_of(form)
    prefill(executor, 20)
    pages = executor._pages
    before = pages.keys.clone(), pages.values.clone()

    executor.forward(batch_from_runs([own(20, 23), Run(IDS[:2], 0, OTHER_PAGES[:1], 1)]))

    touched = torch.zeros(NUM_PAGES, 16, dtype=torch.bool)
    touched[OWN_PAGES[1], 4:7] = True
    touched[OTHER_PAGES[0], :2] = True
    changed_keys = (pages.keys != before[0]).any(dim=3).any(dim=2).any(dim=0)
    changed_values = (pages.values != before[1]).any(dim=4).any(dim=2).any(dim=0)
    assert torch.equal(changed_keys, touched)
    assert torch.equal(changed_values, touched)


@pytest.mark.parametrize("form", FORMS[:3])
def test_a_row_that_is_not_a_number_spoils_only_itself(form):
    config = tiny_config()
    weights = random_weights(config)
    weights["model.embed_tokens.weight"][7] = float("nan")
    dtype = torch.bfloat16 if "bf16" in form else torch.float32
    # An untied head, or the bad row of the table would be a bad column of the head.
    executor = native_executor(config, dtype, weights=weights)
    good = Run((3, 4, 5), 0, (0,), 1)
    expected = logits_of(executor, batch_from_runs([good]))

    logits = logits_of(executor, batch_from_runs([Run((3, 7), 0, (1,), 1), good]))

    columns = [i for i in range(80) if i != 7]
    assert logits[0].isnan().all()
    assert torch.equal(logits[1, columns], expected[0, columns])

"""The faults do what they say, strike when the dice do, and a storm sees every one of them."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from benchmarks.faults import Seen, StormCheck
from benchmarks.rigs.fault import Dice, Fault
from benchmarks.rigs.faulty_target import FaultyTarget
from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.slot_memory import HashMemory, KeyValueMemory
from dflash.batch import Batch, Run, batch_from_runs
from dflash.kernels.pages import KVPages

PROMPT = tuple(range(1, 21))
OTHER = tuple(range(101, 121))


def prefilled(model: HashLM) -> Batch:
    """Fill pages 0 to 3 with two sequences of 20 tokens; return the step that follows."""
    model.forward(batch_from_runs([Run(PROMPT, 0, (0, 1), 1), Run(OTHER, 0, (2, 3), 1)]))
    return batch_from_runs([Run((7,), 20, (0, 1), 1), Run((8,), 20, (2, 3), 1)])


def faulty(model: HashLM, fault: Fault, chance: float = 1.0) -> tuple[FaultyTarget, Dice]:
    dice = Dice(chance, seed=0)
    return FaultyTarget(model, HashMemory(model), fault, dice), dice


@pytest.mark.parametrize("fault", Fault)
def test_a_target_whose_fault_never_strikes_is_sound(fault: Fault):
    model, sound = HashLM(), HashLM()
    target, dice = faulty(model, fault, chance=0.0)

    logits = target.forward(prefilled(model)).logits

    assert torch.equal(logits, sound.forward(prefilled(sound)).logits)
    assert np.array_equal(model.page_contents(), sound.page_contents())
    assert dice.num_struck == 0


def test_swapped_sequences_answer_from_each_others_pages():
    model, sound = HashLM(), HashLM()
    target, dice = faulty(model, Fault.KV_SWAPPED)

    logits = target.forward(prefilled(model)).logits

    crossed = batch_from_runs([Run((7,), 20, (2, 3), 1), Run((8,), 20, (0, 1), 1)])
    prefilled(sound)
    assert torch.equal(logits, sound.forward(crossed).logits)
    assert dice.num_struck == 1


def test_a_swap_needs_pages_enough_on_both_sides():
    model = HashLM()
    model.forward(batch_from_runs([Run(PROMPT, 0, (0, 1), 1), Run((5,), 0, (2,), 1)]))
    target, dice = faulty(model, Fault.KV_SWAPPED)

    target.forward(batch_from_runs([Run((7,), 20, (0, 1), 1), Run((8,), 1, (2,), 1)]))

    assert dice.num_struck == 0


def test_an_early_run_overwrites_the_token_before_it_unless_it_is_the_first():
    model = HashLM()
    target, dice = faulty(model, Fault.POSITION_OFF_BY_ONE)
    step = prefilled(model)

    target.forward(step)
    target.forward(batch_from_runs([Run((9,), 0, (5,), 1)]))

    contents = model.page_contents().reshape(-1, 3)
    assert contents[16 + 3, :2].tolist() == [19, 7]
    assert contents[16 + 4, 1] == 0
    assert contents[5 * 16, :2].tolist() == [0, 9]
    assert dice.num_struck == 2


@pytest.mark.parametrize(
    ("fault", "changed"),
    [
        (Fault.PAGE_STALE, [False, False]),
        (Fault.REJECTED_VISIBLE, [True, True]),
        (Fault.KEY_DRIFT, [True, True]),
    ],
)
def test_only_a_stale_page_keeps_all_that_it_held(fault: Fault, changed: list[bool]):
    model = HashLM()
    target, _ = faulty(model, fault)
    step = prefilled(model)
    before = model.page_contents()

    target.forward(step)

    assert (model.page_contents() != before)[[1, 3], 4].any(axis=-1).tolist() == changed


def test_a_rejected_draft_stays_where_the_next_token_should_be():
    model = HashLM()
    target, dice = faulty(model, Fault.REJECTED_VISIBLE)
    prefilled(model)
    target.forward(batch_from_runs([Run((7, 50, 51), 20, (0, 1), 3)]))
    rejected = model.page_contents()[1, 5].tolist()

    target.forward(batch_from_runs([Run((8, 60, 61), 21, (0, 1), 3)]))

    assert model.page_contents()[1, 5].tolist() == rejected
    assert model.page_contents()[1, 7].tolist()[:2] == [23, 61]
    assert dice.num_struck == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_keys_drift_by_one_unit_in_the_last_place_and_values_do_not(dtype: torch.dtype):
    draw = torch.Generator().manual_seed(0)
    pages = KVPages(
        keys=torch.randn(2, 4, 1, 32, 16, generator=draw).to(dtype),
        values=torch.randn(2, 4, 1, 16, 32, generator=draw).to(dtype),
    )
    keys, values = pages.keys.clone(), pages.values.clone()

    KeyValueMemory(pages).drift(np.array([16 * 2 + 3]))

    moved = pages.keys != keys
    away = torch.nextafter(keys, keys.sign() * torch.inf)
    assert moved.nonzero()[:, [1, 4]].unique(dim=0).tolist() == [[2, 3]]
    assert torch.equal(pages.keys[moved], away[moved])
    assert int(moved.sum()) == 2 * 32
    assert torch.equal(pages.values, values)


def kv_pages(draw: torch.Generator) -> KeyValueMemory:
    shape = (2, 4, 1)
    return KeyValueMemory(
        KVPages(
            torch.randn(*shape, 32, 16, generator=draw), torch.randn(*shape, 16, 32, generator=draw)
        )
    )


def hash_pages(draw: torch.Generator) -> HashMemory:
    model = HashLM()
    prefilled(model)
    return HashMemory(model)


@pytest.mark.parametrize("memory_of", [kv_pages, hash_pages])
def test_what_was_read_can_be_put_back_elsewhere(
    memory_of: Callable[[torch.Generator], KeyValueMemory | HashMemory],
):
    memory = memory_of(torch.Generator().manual_seed(0))
    here, there = np.array([3, 17]), np.array([40, 5])
    content = memory.read(here)

    memory.write(there, content)

    for ours, theirs in zip(memory.read(there), content, strict=True):
        assert np.array_equal(ours, theirs)
    for ours, theirs in zip(memory.read(here), content, strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("fault", Fault)
def test_a_small_storm_sees_every_fault(fault: Fault):
    seen = StormCheck(num_requests=25).look_at(fault, 1.0)
    assert seen.num_struck > 0
    assert seen.is_caught


def test_a_small_storm_without_a_fault_is_no_false_alarm():
    seen = StormCheck(num_requests=25).look_at(Fault.KV_SWAPPED, 0.0)
    assert seen.num_struck == 0
    assert not seen.is_caught


@pytest.mark.parametrize(
    ("differences", "is_caught"), [({}, False), ({"ids_differ": 0}, False), ({"raised": 1}, True)]
)
def test_a_fault_is_caught_by_any_difference(differences: dict[str, int], is_caught: bool):
    assert Seen(3, differences).is_caught == is_caught

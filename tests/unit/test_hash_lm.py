"""The rig itself: pages and no pages give one answer, and a fault of pages shows."""

import pytest
import torch

from benchmarks.rigs.hash_lm import HashLM, UnwrittenSlotError
from dflash.batch import Run, batch_from_runs

IDS = tuple(range(7, 47))


def run(start: int, end: int, table: tuple[int, ...], num_logits: int = 1) -> Run:
    return Run(IDS[start:end], start, table, num_logits)


def test_chunks_in_scattered_pages_answer_as_no_pages_do():
    model = HashLM()
    table = (9, 2, 5)
    model.forward(batch_from_runs([run(0, 17, table, num_logits=0)]))
    logits = model.forward(batch_from_runs([run(17, 40, table, num_logits=3)])).logits
    expected = torch.cat([model.next_logits(IDS[:end]) for end in (38, 39, 40)])
    assert torch.equal(logits, expected)


def test_a_wrong_page_changes_the_answer():
    model = HashLM()
    model.forward(batch_from_runs([run(0, 32, (9, 2)), run(0, 32, (3, 4))]))
    right = model.forward(batch_from_runs([run(32, 33, (9, 2, 5))])).logits
    swapped = model.forward(batch_from_runs([run(32, 33, (2, 9, 5))])).logits
    assert not torch.equal(right, swapped)


def test_a_prefix_computed_on_a_wrong_page_leaves_a_trace():
    model = HashLM()
    model.forward(batch_from_runs([run(0, 32, (9, 2), num_logits=0)]))
    model.forward(batch_from_runs([Run(IDS[:16][::-1], 0, (7,), 0)]))
    model.forward(batch_from_runs([run(16, 32, (7, 2), num_logits=0)]))
    later = model.forward(batch_from_runs([run(32, 33, (9, 2, 5))])).logits
    assert not torch.equal(later, model.next_logits(IDS[:33]))


@pytest.mark.parametrize("start", [16, 17])
def test_reading_a_poisoned_page_raises(start: int):
    model = HashLM()
    model.forward(batch_from_runs([run(0, start, (9, 2), num_logits=0)]))
    model.poison([9])
    with pytest.raises(UnwrittenSlotError, match="slot 0 of page 9"):
        model.forward(batch_from_runs([run(start, start + 1, (9, 2))]))


def test_logits_of_different_prefixes_have_different_winners():
    model = HashLM()
    winners = {int(model.next_logits(IDS[:end]).argmax()) for end in range(1, 41)}
    assert len(winners) > 30

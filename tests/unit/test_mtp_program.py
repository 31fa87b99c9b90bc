"""What an MTP head's passes read and write: its context, its chain's own slots, nothing else."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.rigs.tiny_mtp import TinyMtp, write_tiny_mtp
from dflash.drafters import load
from dflash.drafters.base import ContextRows, DraftRow
from dflash.drafters.binding import open_bound_drafter
from dflash.drafters.load import Lender, load_drafter
from dflash.drafters.names import LOGITS
from dflash.models.config import model_config_from_json
from dflash.models.registry import program_for
from dflash.noise import NoiseKey, gumbel_noise
from tests.rigs.both_forms import form_named
from tests.rigs.tiny_checkpoint import TINY_CONFIG, tiny_tensors

TARGET = model_config_from_json(TINY_CONFIG)
WINDOW, NUM_PAGES, LINKS = 18, 9, 4
PAGES = (5, 0, 7, 2)
KINDS = {
    "whole": TinyMtp(),
    "window": TinyMtp(window=WINDOW),
    "reduced": TinyMtp(draft_vocab_size=16),
}


class Loaded:
    """A head with its pages, and the logits of its last chain's links."""

    def __init__(self, drafter, pages):
        self.pages, self.states = pages, drafter.states
        self.logits = []
        first, later = (self._recorded(each) for each in (drafter.first_link, drafter.next_link))
        self.drafter = replace(drafter, first_link=first, next_link=later)

    def observe(self, rows, start, end, pages=PAGES):
        self.drafter.observe(rows, [ContextRows(start, pages, range(start, end))])

    def propose(self, *rows):
        self.logits.clear()
        return self.drafter.propose(rows)

    def logits_at(self, position, anchor=9):
        self.propose(row(position, anchor))
        return torch.cat(self.logits)

    def context(self, length):
        """Keys, values and states of the first tokens of the sequence in PAGES, by token."""
        tables = torch.tensor(PAGES)
        keys = self.pages.keys[0, tables].permute(0, 3, 1, 2).flatten(0, 1)
        values = self.pages.values[0, tables].transpose(1, 2).flatten(0, 1)
        states = self.states.view(NUM_PAGES, 16, -1)[tables].flatten(0, 1)
        # The first token has no pair, so no key either.
        return keys[1:length].clone(), values[1:length].clone(), states[:length].clone()

    def _recorded(self, executor):
        logits = self.logits

        class Recorder:
            def run(self, batch):
                outputs = executor.run(batch)
                logits.append(outputs[LOGITS].clone())
                return outputs

        return Recorder()


def row(position, anchor=9, num_drafts=LINKS, temperature=0.0, pages=PAGES) -> DraftRow:
    return DraftRow(anchor, position, pages, num_drafts, temperature, 3, 0)


def features(length, seed=1, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(length, 2 * TARGET.hidden_size, generator=generator).to(dtype)


@pytest.fixture(params=["torch", "compiled"])
def loaded(request, tmp_path, monkeypatch):
    """Load a kind of head, as often as it is called, each with pages of its own."""
    allocate, folders, allocated = load.allocate_pages, iter(range(100)), []

    def remembered(*args):
        allocated.append(allocate(*args))
        return allocated[-1]

    monkeypatch.setattr(load, "allocate_pages", remembered)

    def one(kind, dtype=torch.float32) -> Loaded:
        lender = Lender(
            config=TARGET,
            fingerprint="",
            program=program_for(TARGET),
            weight=tiny_tensors().__getitem__,
            form=form_named(request.param),
            dtype=dtype,
            num_pages=NUM_PAGES,
            max_model_len=TARGET.max_position_embeddings,
        )
        folder = write_tiny_mtp(tmp_path / str(next(folders)), KINDS[kind], TARGET)
        drafter = load_drafter(open_bound_drafter(folder, TARGET, ""), lender, max_runs=3)
        return Loaded(drafter, allocated[-1])

    return one


def assert_equal(some, others):
    for one, other in zip(some, others, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_context_that_grew_is_the_context_computed_at_once(loaded, kind, dtype):
    rows = features(37, dtype=dtype)
    whole, grown = loaded(kind, dtype), loaded(kind, dtype)

    whole.observe(rows, 0, 37)
    start = 0
    for end in (1, 2, 15, 16, 17, 31, 32, 37):
        grown.observe(rows, start, end)
        # A chain writes where tokens are yet to come; they take its place.
        grown.logits_at(end)
        start = end

    assert_equal(whole.context(37), grown.context(37))
    assert torch.equal(whole.logits_at(37), grown.logits_at(37))


def test_a_context_computed_again_in_part_is_the_same(loaded):
    rows = features(37)
    one = loaded("whole")
    one.observe(rows, 0, 37)
    before = one.context(37)

    one.observe(rows, 5, 12)
    one.observe(rows, 16, 20)

    assert_equal(one.context(37), before)


def test_sequences_that_share_pages_each_go_on_from_the_shared_state(loaded):
    rows, other = features(40), features(40, seed=2)
    other[:32] = rows[:32]
    shared, alone = loaded("whole"), loaded("whole")
    shared.observe(rows, 0, 40)
    one, another = row(40), row(40, pages=(5, 0, 8, 1))
    first = shared.propose(one)
    shared.observe(other, 32, 40, pages=(5, 0, 8, 1))
    second = shared.propose(another)

    assert shared.propose(one) == first
    alone.observe(other, 0, 40)
    assert alone.propose(row(40)) == second
    assert first != second


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("position", [1, 2, 15, 16, 17, 33])
def test_a_chain_writes_only_where_tokens_are_yet_to_come_and_reads_nothing_there(
    loaded, kind, position
):
    one = loaded(kind)
    one.observe(features(position), 0, position)
    expected, before = one.logits_at(position), one.context(position)
    elsewhere = [page for page in range(NUM_PAGES) if page not in PAGES]

    for tensor in (one.pages.keys, one.pages.values, one.states):
        tensor.fill_(torch.nan)
    one.observe(features(position), 0, position)

    assert torch.equal(one.logits_at(position), expected)
    assert bool(expected.isfinite().all())
    assert_equal(one.context(position), before)
    assert bool(one.pages.keys[:, elsewhere].isnan().all())
    assert bool(one.pages.values[:, elsewhere].isnan().all())


def test_rejected_rows_never_enter_the_context(loaded):
    rows = features(30)
    verified, plain = loaded("whole"), loaded("whole")
    plain.observe(rows, 0, 20)
    verified.observe(rows, 0, 16)

    # A run of eight rows at positions 16 to 23, of which four stay.
    run = torch.cat([features(5, seed=2), rows[16:20], features(4, seed=3)])
    verified.drafter.observe(run, [ContextRows(16, PAGES, range(5, 9))])

    assert_equal(verified.context(20), plain.context(20))
    assert torch.equal(verified.logits_at(20), plain.logits_at(20))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_drafts_the_same_whatever_is_drafted_beside_it(loaded, kind, dtype):
    one = loaded(kind, dtype)
    one.observe(features(40, dtype=dtype), 0, 40)
    one.observe(features(16, seed=5, dtype=dtype), 0, 16, pages=(8, 1))
    one.observe(features(15, seed=6, dtype=dtype), 0, 15, pages=(3,))
    one.observe(features(1, seed=7, dtype=dtype), 0, 1, pages=(6,))
    rows = [
        row(40, temperature=1.0),
        row(16, 4, 2, pages=(8, 1)),
        # One that has no token before its anchor, and one whose pages end.
        row(0, pages=(4,)),
        row(15, 4, 4, temperature=0.5, pages=(3,)),
        row(1, 1, 1, pages=(6,)),
    ]
    alone, logits = [], []
    for each in rows:
        alone += one.propose(each)
        logits.append([link[0] for link in one.logits])

    assert one.propose(*rows) == alone
    assert [len(draft) for draft in alone] == [4, 2, 0, 1, 1]
    for link, together in enumerate(one.logits):
        assert_equal(together, [each[link] for each in logits if len(each) > link])
    assert one.propose() == []


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_drafts_are_the_first_of_more_and_take_fewer_links(loaded, kind):
    one = loaded(kind)
    one.observe(features(20), 0, 20)
    (whole,) = one.propose(row(20))
    for num_drafts in range(1, LINKS + 1):
        assert one.propose(row(20, num_drafts=num_drafts)) == [whole[:num_drafts]]
        assert len(one.logits) == num_drafts


def test_noise_is_that_of_each_tokens_own_position(loaded):
    one = loaded("reduced")
    one.observe(features(20), 0, 20)

    # All ids of the head are candidates, and at such a temperature the noise alone chooses.
    (drafts,) = one.propose(row(20, temperature=1e9))

    ids = np.arange(16) * 3
    best = [gumbel_noise(NoiseKey(3, 0, position), ids).argmax() for position in range(21, 25)]
    assert list(drafts) == [ids[index] for index in best]


@pytest.mark.parametrize("position", [19, 32, 33, 40])
def test_a_window_ends_exactly_where_it_should(loaded, position):
    one, rows = loaded("window"), features(position)

    def logits_with_a_change_at(changed):
        other = rows.clone()
        # The embedded token of this position alone: its state belongs to the next pair.
        other[changed, : TARGET.hidden_size] += 1.0
        one.observe(other, 0, position)
        return one.logits_at(position)[0]

    one.observe(rows, 0, position)
    expected = one.logits_at(position)[0]

    assert torch.equal(logits_with_a_change_at(position - WINDOW), expected)
    assert not torch.equal(logits_with_a_change_at(position - WINDOW + 1), expected)


def test_a_row_without_a_finite_number_ends_its_own_chain(loaded):
    one, rows = loaded("whole"), features(20)
    one.observe(rows, 0, 20)
    one.observe(features(16, seed=5).fill_(torch.nan), 0, 16, pages=(8, 1))
    (right,) = one.propose(row(20))

    assert one.propose(row(16, pages=(8, 1)), row(20)) == [(), right]

"""What a drafter's passes read and write: its context, its block, and nothing else."""

from dataclasses import replace

import pytest
import torch

from benchmarks.rigs.tiny_drafter import (
    TinyDrafter,
    tiny_drafter_json,
    tiny_drafter_tensors,
    write_tiny_drafter,
)
from dflash.drafters import load
from dflash.drafters.base import ContextRows
from dflash.drafters.binding import open_bound_drafter
from dflash.drafters.load import Lender, load_drafter
from dflash.errors import CheckpointError
from dflash.models.config import model_config_from_json
from dflash.models.registry import program_for
from tests.rigs.both_forms import form_named
from tests.rigs.loaded_drafter import Loaded, row
from tests.rigs.tiny_checkpoint import TINY_CONFIG, tiny_tensors

TARGET = model_config_from_json(TINY_CONFIG)
WINDOW, NUM_PAGES, MAX_RUNS = 18, 9, 3
KINDS = {
    "v1": TinyDrafter(version=1),
    "v2": TinyDrafter(),
    "v2 window": TinyDrafter(window=WINDOW),
    "v2 causal window": TinyDrafter(window=WINDOW, is_causal=True),
    "v2 reduced": TinyDrafter(draft_vocab_size=24),
}


def lender(form, dtype=torch.float32) -> Lender:
    return Lender(
        config=TARGET,
        fingerprint="",
        program=program_for(TARGET),
        weight=tiny_tensors().__getitem__,
        form=form,
        dtype=dtype,
        num_pages=NUM_PAGES,
        max_model_len=TARGET.max_position_embeddings,
    )


@pytest.fixture(params=["torch", "compiled"])
def loaded(request, tmp_path, monkeypatch):
    """Load a kind of drafter, as often as it is called, each with pages of its own."""
    allocate, folders = load.allocate_pages, iter(range(100))
    allocated = []

    def remembered(*args):
        allocated.append(allocate(*args))
        return allocated[-1]

    monkeypatch.setattr(load, "allocate_pages", remembered)

    def one(kind, dtype=torch.float32, **changes) -> Loaded:
        folder = write_tiny_drafter(tmp_path / str(next(folders)), kind, TARGET, **changes)
        checkpoint = open_bound_drafter(folder, TARGET, "")
        drafter = load_drafter(checkpoint, lender(form_named(request.param), dtype), MAX_RUNS)
        return Loaded(drafter, allocated[-1])

    return one


def features(length, seed=1, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(length, 2 * TARGET.hidden_size, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_a_context_that_grew_is_the_context_computed_at_once(loaded, kind, dtype):
    rows = features(37, dtype=dtype)
    whole, grown = loaded(KINDS[kind], dtype), loaded(KINDS[kind], dtype)

    whole.observe(rows, 0, range(37))
    start = 0
    for end in (1, 15, 16, 17, 31, 37):
        grown.observe(rows, start, range(start, end))
        grown.logits_at(end)
        start = end

    for own, other in zip(whole.context(37), grown.context(37), strict=True):
        assert torch.equal(own, other)
    assert torch.equal(whole.logits_at(37), grown.logits_at(37))


@pytest.mark.parametrize("kind", KINDS)
def test_rejected_rows_never_enter_the_context(loaded, kind):
    rows = features(30)
    verified, plain = loaded(KINDS[kind]), loaded(KINDS[kind])
    plain.observe(rows, 0, range(20))
    verified.observe(rows, 0, range(16))
    before = [tensor.clone() for tensor in verified.context(64)]

    # A run of eight rows at positions 16 to 23, of which four stay.
    run = torch.cat([features(5, seed=2), rows[16:20], features(4, seed=3)])
    verified.observe(run, 16, range(5, 9))

    for old, new, right in zip(before, verified.context(64), plain.context(64), strict=True):
        assert torch.equal(new, right)
        assert not torch.equal(new, old)
    assert torch.equal(verified.logits_at(20), plain.logits_at(20))


@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_leaves_every_page_of_every_sequence_as_it_was(loaded, kind):
    one = loaded(KINDS[kind])
    one.observe(features(37), 0, range(37))
    before = one.pages.keys[:, :NUM_PAGES].clone(), one.pages.values[:, :NUM_PAGES].clone()

    one.drafter.propose([row(37), row(20), row(16)])

    assert torch.equal(one.pages.keys[:, :NUM_PAGES], before[0])
    assert torch.equal(one.pages.values[:, :NUM_PAGES], before[1])
    assert bool(one.pages.keys[:, NUM_PAGES:].any())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("position", [1, 15, 16, 17, 33])
def test_nothing_at_or_after_the_anchor_is_read(loaded, kind, position):
    one = loaded(KINDS[kind])
    one.observe(features(position), 0, range(position))
    expected = one.logits_at(position)
    keys, values = one.context(position)

    one.pages.keys.fill_(torch.nan)
    one.pages.values.fill_(torch.nan)
    one.observe(features(position), 0, range(position))

    assert torch.equal(one.logits_at(position), expected)
    assert bool(expected.isfinite().all())
    for own, other in zip((keys, values), one.context(position), strict=True):
        assert torch.equal(own, other)


@pytest.mark.parametrize("kind", ["v2 window", "v2 causal window"])
@pytest.mark.parametrize("position", [19, 32, 33, 40])
def test_a_window_ends_exactly_where_it_should(loaded, kind, position):
    one = loaded(KINDS[kind])
    rows = features(position)

    def logits_with_a_change_at(changed):
        other = rows.clone()
        other[changed] += 1.0
        one.observe(other, 0, range(position))
        return one.logits_at(position)

    one.observe(rows, 0, range(position))
    expected = one.logits_at(position)

    # The first slot to predict stands at position + 1; only the anchor sees one key further back.
    assert torch.equal(logits_with_a_change_at(position - WINDOW), expected)
    assert not torch.equal(logits_with_a_change_at(position - WINDOW + 1), expected)


@pytest.mark.parametrize("kind", ["v1", "v2"])
def test_without_a_window_the_first_token_is_seen(loaded, kind):
    one = loaded(KINDS[kind])
    rows = features(40)
    one.observe(rows, 0, range(40))
    expected = one.logits_at(40)
    rows[0] += 1.0
    one.observe(rows, 0, range(40))

    assert not torch.equal(one.logits_at(40), expected)


def test_a_causal_block_does_not_see_later_slots_and_another_does(loaded):
    for kind, is_seen in ((TinyDrafter(version=1, is_causal=True), False), (KINDS["v1"], True)):
        longer, shorter = loaded(replace(kind, block_size=8)), loaded(replace(kind, block_size=4))
        for one in (longer, shorter):
            one.observe(features(20), 0, range(20))

        of_longer, of_shorter = longer.logits_at(20)[:3], shorter.logits_at(20, num_drafts=3)

        is_equal = torch.allclose(of_longer, of_shorter, atol=1e-5)
        assert is_equal is not is_seen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_rows_logits_are_its_own_whatever_is_drafted_beside_it(loaded, kind, dtype):
    one = loaded(KINDS[kind], dtype)
    one.observe(features(40, dtype=dtype), 0, range(40))
    one.observe(features(16, seed=5, dtype=dtype), 0, range(16), pages=(8,))
    rows = [row(40), row(17, 3, 2), row(16, 4, 5, pages=(8,)), row(1, 2, 7), row(33, 1, 1)]
    alone = []
    for each in rows:
        one.drafter.propose([each])
        alone.append(one.logits)

    one.drafter.propose([rows[2], rows[0], rows[1]])

    assert torch.equal(one.logits, torch.cat([alone[2], alone[0], alone[1]]))


def test_more_rows_than_scratch_pages_take_more_passes(loaded):
    one = loaded(KINDS["v2"])
    one.observe(features(40), 0, range(40))
    rows = [row(position, temperature=1.0) for position in (40, 3, 17, 16, 1, 32, 33)]
    alone = [one.drafter.propose([each])[0] for each in rows]
    one.num_passes = 0

    assert one.drafter.propose(rows) == alone
    assert one.num_passes == 3
    assert one.drafter.propose([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_drafts_are_the_first_of_more_and_the_head_computes_no_others(loaded, kind):
    one = loaded(KINDS[kind])
    one.observe(features(20), 0, range(20))
    (whole,) = one.drafter.propose([row(20)])
    every_slot = one.logits

    for num_drafts in range(1, 8):
        assert one.drafter.propose([row(20, num_drafts=num_drafts)]) == [whole[:num_drafts]]
        assert torch.equal(one.logits, every_slot[:num_drafts])


def test_commits_of_several_sequences_go_to_their_own_pages(loaded):
    together, apart = loaded(KINDS["v2"]), loaded(KINDS["v2"])
    rows = features(30)
    commits = [
        ContextRows(0, (1, 2), range(20, 29)),
        ContextRows(0, (6, 3), range(17)),
    ]
    together.drafter.observe(rows, commits)
    for commit in commits:
        apart.drafter.observe(rows, [commit])
    together.drafter.observe(rows, [])

    assert torch.equal(together.pages.keys, apart.pages.keys)
    assert torch.equal(together.pages.values, apart.pages.values)


@pytest.mark.parametrize("kind", [KINDS["v2"], KINDS["v2 reduced"]])
def test_copies_of_the_targets_tensors_may_lie_in_the_file_if_they_are_copies(loaded, kind):
    content = tiny_drafter_json(kind, TARGET)
    tensors = tiny_drafter_tensors(content)
    table = tiny_tensors()["model.embed_tokens.weight"]
    head = table.clone()
    if "d2t" in tensors:
        head = head[tensors["d2t"] + torch.arange(24)]
    tensors |= {"embed_tokens.weight": table, "lm_head.weight": head.clone()}
    expected, with_copies = loaded(kind), loaded(kind, tensors=tensors)
    for one in (expected, with_copies):
        one.observe(features(20), 0, range(20))
    assert torch.equal(with_copies.logits_at(20), expected.logits_at(20))

    for name in ("embed_tokens.weight", "lm_head.weight"):
        other = tensors | {name: tensors[name] + 1.0}
        with pytest.raises(CheckpointError, match=f"{name} differs"):
            loaded(kind, tensors=other)


def test_a_reduced_head_is_rows_of_the_targets_head(loaded):
    tensors = tiny_drafter_tensors(tiny_drafter_json(KINDS["v2"], TARGET))
    ids = torch.arange(24) * 2
    whole = loaded(KINDS["v2"], tensors=tensors)
    reduced = loaded(KINDS["v2 reduced"], tensors=tensors | {"d2t": ids - torch.arange(24)})
    for one in (whole, reduced):
        one.observe(features(20), 0, range(20))

    torch.testing.assert_close(reduced.logits_at(20), whole.logits_at(20)[:, ids])
    (draft,) = reduced.drafter.propose([row(20)])
    assert set(draft) <= set(ids.tolist())


def test_a_scale_of_the_embedding_is_applied_to_every_slot(loaded):
    kind = KINDS["v1"]
    content = tiny_drafter_json(kind, TARGET)
    plain = loaded(kind)
    scaled = loaded(kind, content=content | {"input_embedding_scale": 4.0})
    for one in (plain, scaled):
        one.observe(features(20), 0, range(20))

    assert not torch.allclose(scaled.logits_at(20), plain.logits_at(20), atol=0.1)

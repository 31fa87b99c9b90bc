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
from dflash.drafters.base import ContextRows, DraftRow
from dflash.drafters.borrowed import borrowed_names
from dflash.drafters.config import dflash_config_from_json
from dflash.drafters.dflash_program import LOGITS, block_program, context_program
from dflash.drafters.load import Lender, load_drafter, open_bound_drafter
from dflash.errors import CheckpointError
from dflash.forms import CompiledForm, TorchForm
from dflash.kernels.build import native_build
from dflash.kernels.torch_drafts import convolved
from dflash.kernels.torch_forms import FixedRows, OneQuery
from dflash.models.config import model_config_from_json
from dflash.models.registry import program_for
from dflash.program import Attend, Convolve, Embed, Linear
from tests.rigs.tiny_checkpoint import TINY_CONFIG, tiny_tensors

TARGET = model_config_from_json(TINY_CONFIG)
WINDOW, NUM_PAGES, MAX_RUNS = 18, 9, 3
PAGES = (5, 0, 7, 2)
KINDS = {
    "v1": TinyDrafter(version=1),
    "v2": TinyDrafter(),
    "v2 window": TinyDrafter(window=WINDOW),
    "v2 causal window": TinyDrafter(window=WINDOW, is_causal=True),
    "v2 reduced": TinyDrafter(draft_vocab_size=24),
}


class Loaded:
    """A drafter with its pages, and the last logits of its block."""

    def __init__(self, drafter, pages):
        self.pages = pages
        self.logits = torch.empty(0)
        self.num_passes = 0
        self.drafter = replace(drafter, block=self)
        self._block = drafter.block

    def run(self, batch):
        outputs = self._block.run(batch)
        self.logits = outputs[LOGITS].clone()
        self.num_passes += 1
        return outputs

    def observe(self, features, start, rows, pages=PAGES):
        self.drafter.observe(features, [ContextRows(start, pages, rows)])

    def logits_at(self, position, anchor=9, num_drafts=7):
        self.drafter.propose([row(position, anchor, num_drafts)])
        return self.logits

    def context(self, position):
        """Keys and values of the first tokens of the sequence in PAGES."""
        tables = torch.tensor(PAGES)
        keys = self.pages.keys[:, tables].permute(0, 2, 3, 1, 4).flatten(3)[..., :position]
        values = self.pages.values[:, tables].transpose(1, 2).flatten(2, 3)[:, :, :position]
        return keys.clone(), values.clone()


def row(position, anchor=9, num_drafts=7, temperature=0.0, pages=PAGES) -> DraftRow:
    return DraftRow(anchor, position, pages, num_drafts, temperature, 3, 0)


def form_named(name):
    if name == "torch":
        return TorchForm(FixedRows(8), OneQuery())
    build = native_build()
    if build.library is None:
        pytest.skip(f"no compiled kernels: {build.why_unavailable}")
    return CompiledForm(build.library, num_threads=1)


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


def test_the_programs_hold_what_their_version_has_and_no_more():
    for version in (1, 2):
        kind = TinyDrafter(version=version)
        config = dflash_config_from_json(tiny_drafter_json(kind, TARGET))
        names = borrowed_names(config, program_for(TARGET))
        context, block = context_program(config), block_program(config, names)

        convolutions = [each for each in block.operations if isinstance(each, Convolve)]
        assert len(convolutions) == (0 if version == 1 else 4 * kind.num_layers)
        assert block.outputs == ((LOGITS,) if version == 1 else (LOGITS, "selector_state"))
        assert context.outputs == ()
        assert context.attention.num_heads == 0
        assert not any(isinstance(each, Attend | Embed) for each in context.operations)


def test_what_a_drafter_borrows_keeps_the_targets_names():
    target = program_for(TARGET)
    config = dflash_config_from_json(tiny_drafter_json(KINDS["v2"], TARGET))
    reduced = dflash_config_from_json(tiny_drafter_json(KINDS["v2 reduced"], TARGET))
    tables = {each.weight for each in target.operations if isinstance(each, Embed)}
    matrices = {each.weights for each in target.operations if isinstance(each, Linear)}

    names = borrowed_names(config, target)

    assert names.embedding in tables
    assert (names.head,) in matrices
    assert borrowed_names(reduced, target).head.startswith("drafter.")


def test_the_published_vector_of_the_convolution():
    t, c = torch.arange(3.0, dtype=torch.float64), torch.arange(32.0, dtype=torch.float64)
    x = torch.sin(0.37 * t[:, None] + 0.11 * c)
    side, tap = torch.arange(2.0)[:, None, None], torch.arange(2.0)[None, :, None]
    base = (tap == 0) + 0.01 * torch.cos(side + 2 * tap + 0.3 * c)
    rows = torch.arange(8.0, dtype=torch.float64)
    kernels = x @ (0.02 * torch.sin(0.5 * rows[:, None] + 0.2 * c)).T
    inward, outward = kernels.chunk(2, dim=-1)

    y = convolved(x, inward, base[0], 3)
    z = convolved(2 * y, outward, base[1], 3)

    close = {"abs": 1e-6}
    assert y[1, 0].item() == pytest.approx(0.41673835, **close)
    assert y[2, 31].item() == pytest.approx(-0.92095616, **close)
    expected = [(0, 31, -0.43842797), (1, 0, 0.68840099), (1, 31, -0.91362889)]
    expected += [(2, 0, 1.19877545), (2, 16, 0.70564476), (2, 31, -1.20549095)]
    for slot, channel, value in expected:
        assert z[slot, channel].item() == pytest.approx(value, **close)
    assert z.sum().item() == pytest.approx(69.74918239, abs=1e-4)


def test_a_convolution_starts_anew_in_every_block():
    generator = torch.Generator().manual_seed(0)
    rows, kernels = (torch.randn(8, width, generator=generator) for width in (32, 4))
    base = torch.randn(2, 32, generator=generator)

    whole = convolved(rows, kernels, base, 4)

    for first in (0, 4):
        own = slice(first, first + 4)
        assert torch.equal(whole[own], convolved(rows[own], kernels[own], base, 4))

"""The compiled kernels compute what the torch reference computes."""

import pytest
import torch

from dflash.batch import Run, batch_from_runs
from dflash.errors import CheckpointError, KernelError
from dflash.kernels.packing import interleave_gate, pack
from dflash.kernels.pages import allocate_pages, rotary_table
from dflash.kernels.torch_executor import TorchExecutor
from dflash.kernels.torch_forms import FixedRows, OneQuery, PackedRows, PaddedRuns
from dflash.models.registry import program_for
from dflash.program import AttentionShape
from tests.rigs.tiny_executor import (
    NUM_PAGES,
    logits_of,
    native_executor,
    random_weights,
    tiny_config,
    torch_executor,
)

# Mixed on purpose: a prompt over several pages, a single token, a verify block, an odd tail.
MIXED = (
    Run(tuple(range(3, 40)), 0, (4, 1, 7), 37),
    Run((5,), 0, (9,), 1),
    Run(tuple(range(20, 28)), 0, (11,), 3),
    Run((1, 2, 3), 0, (0,), 0),
)
SHAPES = [
    {},
    {"head_dim": 32, "num_heads": 2, "num_kv_heads": 1},
    {"head_dim": 128, "num_heads": 5, "num_kv_heads": 1},
    {"head_dim": 96, "num_heads": 8, "num_kv_heads": 1},
    {"head_dim": 64, "num_heads": 4, "num_kv_heads": 4},
    {"head_dim": 256, "num_heads": 2, "num_kv_heads": 1},
    {"hidden_size": 48, "vocab_size": 50, "intermediate_size": 112},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_both_forms_give_the_same_logits_up_to_rounding(shape, dtype):
    config = tiny_config(**shape)
    batch = batch_from_runs(MIXED)

    compiled = logits_of(native_executor(config, dtype), batch)
    reference = logits_of(torch_executor(config, dtype), batch)

    assert compiled.shape == (41, config.vocab_size)
    # bfloat16 keeps 8 bits: two layers of differently summed products part by a few of the last.
    tolerance = 2e-5 if dtype == torch.float32 else 0.06
    assert torch.allclose(compiled, reference, rtol=0, atol=tolerance)


def test_both_forms_write_the_same_keys_and_values():
    config = tiny_config()
    compiled, reference = native_executor(config), torch_executor(config)

    for executor in (compiled, reference):
        executor.forward(batch_from_runs(MIXED))

    assert torch.allclose(compiled._pages.keys, reference._pages.keys, rtol=0, atol=1e-5)
    assert torch.allclose(compiled._pages.values, reference._pages.values, rtol=0, atol=1e-5)


def test_a_long_step_is_computed_like_many_short_ones():
    """Past 32 and 128 rows the kernels take other loops."""
    config = tiny_config()
    ids = tuple(i % 80 for i in range(300))
    table = range(20)
    whole = logits_of(native_executor(config), batch_from_runs([Run(ids, 0, table, 300)]))
    reference = logits_of(torch_executor(config), batch_from_runs([Run(ids, 0, table, 300)]))

    assert torch.allclose(whole, reference, rtol=0, atol=2e-5)


@pytest.mark.parametrize("layers", [(), (0,), (1, 0)])
def test_taps_hand_out_the_asked_layers_and_no_others(layers):
    config = tiny_config()
    compiled = native_executor(config).forward(batch_from_runs(MIXED), layers)
    reference = torch_executor(config).forward(batch_from_runs(MIXED), layers)

    assert set(compiled.hidden) == set(layers)
    for layer in layers:
        assert compiled.hidden[layer].shape == (49, config.hidden_size)
        assert torch.allclose(compiled.hidden[layer], reference.hidden[layer], atol=2e-5)


def test_taps_survive_growing_buffers_and_do_not_change_the_logits():
    config = tiny_config()
    executor = native_executor(config)
    small, large = batch_from_runs([Run((5,), 0, (9,), 1)]), batch_from_runs(MIXED)
    tapped = executor.forward(small, (1,)).hidden[1].clone()
    executor.forward(large, (0, 1))
    again = executor.forward(small, (1,))

    assert torch.equal(again.hidden[1], tapped)
    assert torch.equal(again.logits, executor.forward(small).logits)


def test_a_step_without_wanted_logits_returns_none():
    batch = batch_from_runs([Run((1, 2, 3), 0, (0,), 0)])

    assert native_executor(tiny_config()).forward(batch).logits.shape == (0, 80)
    assert torch_executor(tiny_config()).forward(batch).logits.shape == (0, 80)


def test_the_free_forms_compute_the_same_model():
    config = tiny_config()
    weights = random_weights(config)
    program = program_for(config)
    free = TorchExecutor(
        program,
        weights.__getitem__,
        allocate_pages(program.attention, NUM_PAGES, torch.float32),
        rotary_table(program.attention, 1024),
        PackedRows(),
        PaddedRuns(),
    )
    reference = torch_executor(config)

    for _ in range(2):  # the second time over pages that hold something
        batch = batch_from_runs(MIXED)
        assert torch.allclose(
            logits_of(free, batch), logits_of(reference, batch), rtol=0, atol=2e-5
        )


def test_the_free_attention_reads_no_slot_that_was_never_written():
    config = tiny_config()
    program = program_for(config)
    pages = allocate_pages(program.attention, NUM_PAGES, torch.float32)
    pages.keys.fill_(float("nan"))
    pages.values.fill_(float("nan"))
    free = TorchExecutor(
        program,
        random_weights(config).__getitem__,
        pages,
        rotary_table(program.attention, 1024),
        PackedRows(),
        PaddedRuns(),
    )

    assert logits_of(free, batch_from_runs(MIXED)).isfinite().all()


def test_an_untied_head_is_used_where_the_checkpoint_has_one():
    from dataclasses import replace

    config = replace(tiny_config(), tie_word_embeddings=False)
    weights = random_weights(config)
    batch = batch_from_runs(MIXED)
    compiled = logits_of(native_executor(config, weights=weights), batch)
    weights["lm_head.weight"] = -weights["lm_head.weight"]

    assert torch.allclose(
        logits_of(native_executor(config, weights=weights), batch), -compiled, atol=1e-6
    )


def test_a_packed_matrix_holds_each_weight_once_in_the_documented_place():
    matrix = torch.arange(48 * 40, dtype=torch.float32).reshape(48, 40)

    wide, narrow = pack([matrix], torch.float32), pack([matrix % 251], torch.bfloat16)

    assert wide.shape == (4, 40, 16)
    assert wide[2, 7, 3] == matrix[2 * 16 + 3, 7]
    assert narrow.shape == (4, 32, 16, 2)
    assert narrow[1, 4, 6, 1] == (matrix % 251)[16 + 6, 9]
    assert not wide[3].any()
    assert not narrow[:, 20:].any()


def test_gate_and_up_alternate_by_blocks_of_sixteen_columns():
    gate, up = torch.zeros(32, 4), torch.ones(32, 4)

    assert interleave_gate(gate, up)[:, 0].tolist() == [*[0] * 16, *[1] * 16] * 2
    with pytest.raises(KernelError, match="multiple of 16"):
        interleave_gate(torch.zeros(20, 4), torch.zeros(20, 4))


def test_a_head_the_kernels_cannot_take_is_refused_by_name():
    with pytest.raises(CheckpointError, match="head_dim is 80"):
        AttentionShape(4, 2, 80, 1e4, 1)
    with pytest.raises(CheckpointError, match="num_attention_heads 5"):
        AttentionShape(5, 2, 64, 1e4, 1)


def test_fixed_rows_calls_every_product_with_its_number_of_rows(monkeypatch):
    seen = []
    linear = torch.nn.functional.linear
    monkeypatch.setattr(
        torch.nn.functional, "linear", lambda x, w: seen.append(x.shape[0]) or linear(x, w)
    )
    rows = torch.randn(19, 8)
    product = FixedRows(8).product(rows, torch.eye(8))

    assert seen == [8, 8, 8]
    assert torch.equal(product, rows)
    assert OneQuery().name != PaddedRuns().name

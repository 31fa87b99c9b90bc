import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash.config import Dtype, EngineConfig, EngineLimits, KVCacheConfig
from dflash.errors import AccountingError, ConfigError
from dflash.memory import (
    GIB,
    MIB,
    DrafterSizes,
    MemoryPlan,
    activation_peak_bytes,
    format_plan,
    plan_memory,
    weights_bytes,
)
from dflash.models.config import ModelConfig, model_config_from_json
from dflash.models.registry import program_for
from tests.rigs.tiny_checkpoint import TINY_CONFIG

TINY = model_config_from_json(TINY_CONFIG)
# Per token and layer: a key and a value of one head of 32, in bfloat16.
TINY_PAGE_BYTES = 16 * 2 * 2 * 32 * 2


def smollm2() -> ModelConfig:
    sizes = {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "max_position_embeddings": 8192,
    }
    return model_config_from_json(TINY_CONFIG | sizes)


def tiny_engine(memory_gib: float = 0.01, dtype: Dtype = Dtype.BFLOAT16) -> EngineConfig:
    return EngineConfig(dtype=dtype, kv_cache=KVCacheConfig(memory_gib=memory_gib))


@pytest.mark.parametrize(("dtype", "item_bytes"), [(Dtype.BFLOAT16, 2), (Dtype.FLOAT32, 4)])
def test_a_tied_model_keeps_its_embedding_twice(dtype, item_bytes):
    engine = EngineConfig(dtype=dtype)
    num_parameters, embedding = 134_515_008, 49152 * 576
    rotary_bytes = 8192 * 64 * 4

    expected = (num_parameters + embedding) * item_bytes + rotary_bytes

    assert weights_bytes(smollm2(), engine) == expected


def test_an_untied_model_keeps_every_tensor_once():
    tied, untied = TINY, model_config_from_json(TINY_CONFIG | {"tie_word_embeddings": False})

    assert weights_bytes(tied, tiny_engine()) == weights_bytes(untied, tiny_engine())


def test_a_shorter_sequence_needs_a_shorter_rotary_table():
    full = weights_bytes(TINY, EngineConfig())
    half = weights_bytes(TINY, EngineConfig(max_model_len=64))

    assert full - half == 64 * 32 * 4


def test_the_activation_peak_counts_every_buffer_of_the_largest_step():
    limits = EngineLimits(max_num_seqs=2, max_num_batched_tokens=100)
    token_width = 64 + 64 + (2 + 2) * 32 + 64 + 96
    logit_row_bytes = 2 * (64 + 64) + 4 * 48

    peak_bytes = activation_peak_bytes(program_for(TINY), limits, Dtype.BFLOAT16)

    assert peak_bytes == 100 * token_width * 2 + 2 * 8 * logit_row_bytes


def test_a_step_never_has_more_logit_rows_than_tokens():
    few = EngineLimits(max_num_seqs=32, max_num_batched_tokens=32)
    logit_row_bytes = 2 * (64 + 64) + 4 * 48
    token_row_bytes = 2 * (64 + 64 + (2 + 2) * 32 + 64 + 96)

    peak_bytes = activation_peak_bytes(program_for(TINY), few, Dtype.BFLOAT16)

    assert peak_bytes == 32 * (logit_row_bytes + token_row_bytes)


def test_the_pages_fill_the_memory_they_are_given_and_no_more():
    plan = plan_memory(TINY, tiny_engine(memory_gib=0.01), GIB, 0)

    assert plan.num_pages == int(0.01 * GIB) // TINY_PAGE_BYTES
    assert plan.kv_reserved_bytes == plan.num_pages * TINY_PAGE_BYTES
    assert 0 <= 0.01 * GIB - plan.kv_reserved_bytes < TINY_PAGE_BYTES


def test_wider_elements_halve_the_pages():
    narrow = plan_memory(TINY, tiny_engine(), GIB, 0)
    wide = plan_memory(TINY, tiny_engine(dtype=Dtype.FLOAT32), GIB, 0)

    assert wide.num_pages == narrow.num_pages // 2


@given(
    total_bytes=st.integers(0, 64 * MIB),
    other_bytes=st.integers(0, 64 * MIB),
    memory_gib=st.floats(0.001, 0.1),
)
def test_a_plan_sums_to_the_total_or_is_refused_with_settings_that_fit(
    total_bytes, other_bytes, memory_gib
):
    try:
        plan = plan_memory(TINY, tiny_engine(memory_gib), total_bytes, other_bytes)
    except ConfigError as refusal:
        message = str(refusal)
        if "no room is left" in message:
            assert total_bytes - other_bytes < 2 * MIB
            return
        largest_gib = float(message.rsplit("at most ", 1)[1])
        plan = plan_memory(TINY, tiny_engine(largest_gib), total_bytes, other_bytes)
    assert sum(plan.parts.values()) == plan.total_bytes == total_bytes
    assert plan.other_bytes == other_bytes


def test_a_plan_that_does_not_fit_is_refused_with_its_sum_written_out():
    engine = EngineConfig(kv_cache=KVCacheConfig(memory_gib=4))

    with pytest.raises(ConfigError) as refusal:
        plan_memory(smollm2(), engine, 2 * GIB, 500 * MIB)

    message = str(refusal.value)
    assert "weights 312.6 MiB + KV pages 4,095.7 MiB + activation peak 101.2 MiB" in message
    assert "+ other 500.0 MiB = 5,009.5 MiB, but this process may use 2,048.0 MiB" in message
    assert "engine.kv_cache.memory_gib to at most 1.107" in message


def test_a_model_that_leaves_no_room_for_pages_gets_another_hint():
    with pytest.raises(ConfigError, match="no room is left for KV pages"):
        plan_memory(smollm2(), EngineConfig(), 400 * MIB, 0)


def test_pages_that_cannot_hold_one_sequence_are_refused_with_both_ways_out():
    engine = EngineConfig(kv_cache=KVCacheConfig(memory_gib=0.01))

    with pytest.raises(ConfigError, match=r"memory_gib is 0\.01") as refusal:
        plan_memory(smollm2(), engine, 8 * GIB, 0)

    assert "0.176 or more" in str(refusal.value)
    assert "engine.max_model_len to 464 or less" in str(refusal.value)
    enough = EngineConfig(kv_cache=KVCacheConfig(memory_gib=0.176))
    assert plan_memory(smollm2(), enough, 8 * GIB, 0).num_pages >= 512
    shorter = EngineConfig(kv_cache=KVCacheConfig(memory_gib=0.01), max_model_len=464)
    assert plan_memory(smollm2(), shorter, 8 * GIB, 0).num_pages * 16 >= 464


@given(
    share=st.floats(0.3, 1.0),
    drafter_page_bytes=st.sampled_from([0, 4096]),
)
def test_pages_fill_a_share_that_the_other_parts_leave(share, drafter_page_bytes):
    engine = EngineConfig(kv_cache=KVCacheConfig(memory_share=share))
    drafters = [DrafterSizes(50 * MIB, drafter_page_bytes, 64, MIB)] if drafter_page_bytes else []

    plan = plan_memory(smollm2(), engine, 8 * GIB, 0, drafters)

    page_bytes = plan.kv_reserved_bytes // plan.num_pages + drafter_page_bytes
    most_bytes = share * 8 * GIB
    assert most_bytes - page_bytes - 1 < plan.total_bytes - plan.headroom_bytes <= most_bytes


def test_a_share_that_others_hold_in_part_is_refused_with_one_that_fits():
    engine = EngineConfig(kv_cache=KVCacheConfig(memory_share=0.9))
    with pytest.raises(ConfigError, match=r"memory_share to at most 0\.75$"):
        plan_memory(smollm2(), engine, 8 * GIB, 2 * GIB)
    fits = EngineConfig(kv_cache=KVCacheConfig(memory_share=0.75))
    assert plan_memory(smollm2(), fits, 8 * GIB, 2 * GIB).num_pages > 1000


def test_a_share_without_room_for_one_sequence_is_refused_by_its_name():
    engine = EngineConfig(kv_cache=KVCacheConfig(memory_share=0.01))
    with pytest.raises(ConfigError, match=r"memory_share is 0\.01, room for 0 tokens"):
        plan_memory(smollm2(), engine, 8 * GIB, 0)


def test_the_size_of_the_pages_is_said_once():
    with pytest.raises(ConfigError, match="leave one out"):
        KVCacheConfig(memory_gib=1, memory_share=0.5)


@pytest.mark.parametrize("headroom_bytes", [9, 11, -1])
def test_a_plan_whose_parts_do_not_sum_to_the_total_cannot_be_made(headroom_bytes):
    with pytest.raises(AccountingError):
        MemoryPlan(1, 2, 3, 4, headroom_bytes, 20, num_pages=1, page_size=16)


def test_the_printed_plan_names_every_component_and_the_pages():
    text = format_plan(plan_memory(smollm2(), EngineConfig(), 4 * GIB, 500 * MIB))

    lines = [line.split() for line in text.splitlines()[1:]]
    sizes = {" ".join(words[: words.index("MiB") - 1]): words for words in lines}
    assert list(sizes) == [
        "weights",
        "KV pages",
        "activation peak",
        "other",
        "headroom",
        "total",
    ]
    assert "1,456 pages, 23,296 tokens" in text

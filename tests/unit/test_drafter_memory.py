"""What a drafter will hold in memory, and the plan that has to have room for it."""

import math

import pytest

from benchmarks.rigs.tiny_drafter import TinyDrafter, tiny_drafter_json
from dflash.config import Dtype, EngineConfig, EngineLimits, KVCacheConfig
from dflash.drafters.checkpoint import drafter_tensor_shapes
from dflash.drafters.config import dflash_config_from_json
from dflash.drafters.sizes import drafter_sizes
from dflash.errors import ConfigError
from dflash.memory import GIB, DrafterSizes, format_plan, plan_memory
from dflash.models.config import model_config_from_json
from dflash.models.registry import program_for
from tests.rigs.tiny_checkpoint import TINY_CONFIG

TARGET = model_config_from_json(TINY_CONFIG)
LIMITS = EngineLimits(max_num_seqs=4, max_num_batched_tokens=64)


@pytest.mark.parametrize("kind", [TinyDrafter(version=1), TinyDrafter(draft_vocab_size=24)])
def test_a_drafters_sizes_are_those_of_its_tensors(kind):
    config = dflash_config_from_json(tiny_drafter_json(kind, TARGET))

    sizes = drafter_sizes(config, program_for(TARGET), LIMITS, Dtype.BFLOAT16, 128)

    shapes = drafter_tensor_shapes(config)
    elements = sum(math.prod(shape) for name, shape in shapes.items() if name != "d2t")
    # Keys and values are packed for the context and for the block; k_norm stands in both.
    elements += sum(
        math.prod(shape)
        for name, shape in shapes.items()
        if name.endswith(("k_proj.weight", "v_proj.weight"))
    )
    if kind.draft_vocab_size:
        elements += 24 * 64
    assert sizes.weights_bytes == elements * 2 + 128 * 32 * 4
    # Two layers' key and value of one head of 32, in bfloat16.
    assert sizes.page_bytes == 16 * 2 * 2 * 32 * 2
    assert sizes.num_scratch_pages == LIMITS.max_num_seqs
    assert sizes.activation_bytes > 0


def test_the_plan_has_a_line_for_each_part_of_the_drafter_and_sums_to_the_total():
    engine = EngineConfig(kv_cache=KVCacheConfig(memory_gib=0.01))
    drafter = DrafterSizes(5_000_000, 4096, num_scratch_pages=64, activation_bytes=1_000_000)

    alone = plan_memory(TARGET, engine, GIB, 0)
    plan = plan_memory(TARGET, engine, GIB, 0, [drafter])

    assert plan.drafter_weights_bytes == 5_000_000
    assert plan.drafter_kv_bytes == (plan.num_pages + 64) * 4096
    assert plan.activation_peak_bytes == alone.activation_peak_bytes + 1_000_000
    assert sum(plan.parts.values()) == plan.total_bytes == GIB
    assert "drafter weights" in format_plan(plan)
    assert "drafter KV pages" in format_plan(plan)
    assert "drafter" not in format_plan(alone)


def test_a_plan_with_a_drafter_that_does_not_fit_names_what_would():
    drafter = DrafterSizes(5_000_000, 4096, num_scratch_pages=64, activation_bytes=1_000_000)
    engine = EngineConfig(kv_cache=KVCacheConfig(memory_gib=0.1))

    with pytest.raises(ConfigError, match="drafter KV pages") as refusal:
        plan_memory(TARGET, engine, GIB // 10, 0, [drafter])

    largest_gib = float(str(refusal.value).rsplit("at most ", 1)[1])
    smaller = EngineConfig(kv_cache=KVCacheConfig(memory_gib=largest_gib))
    larger = EngineConfig(kv_cache=KVCacheConfig(memory_gib=largest_gib + 0.002))
    assert plan_memory(TARGET, smaller, GIB // 10, 0, [drafter]).headroom_bytes >= 0
    with pytest.raises(ConfigError):
        plan_memory(TARGET, larger, GIB // 10, 0, [drafter])

"""Memory that is planned, measured, taken by others and given back, one public fault at a time."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.made_up_times import step_times
from benchmarks.rigs.script_drafter import all_right, random_wrong
from deployments.control import PolicyPlanner
from deployments.observation import Sources, Surroundings
from dflash import load
from dflash.batch import Run, batch_from_runs
from dflash.config import Dtype, EngineConfig, EngineLimits, KVCacheConfig
from dflash.load import load_models
from dflash.machine_memory import MachineMemory
from dflash.memory import GIB, DrafterSizes, activation_peak_bytes, plan_memory
from dflash.models.config import model_config_from_json
from dflash.models.registry import program_for
from policy.limits import Limits, MemoryLimits
from policy.readings import MemoryReading
from tests.rigs.drafted import VOCAB, always, assert_right, limits, request, total
from tests.rigs.drafter_config import drafter_config
from tests.rigs.tiny_checkpoint import TINY_CONFIG
from tests.rigs.tiny_executor import native_executor, tiny_config

TARGET = model_config_from_json(TINY_CONFIG)
SIZES = st.builds(
    DrafterSizes,
    weights_bytes=st.integers(1, 50_000_000),
    page_bytes=st.integers(0, 10_000),
    num_scratch_pages=st.integers(0, 64),
    activation_bytes=st.integers(0, 5_000_000),
)


@given(st.lists(SIZES, max_size=3), st.floats(0.005, 0.02))
def test_what_drafters_take_is_what_the_headroom_loses(drafters, memory_gib):
    engine = EngineConfig(kv_cache=KVCacheConfig(memory_gib=memory_gib))
    alone = plan_memory(TARGET, engine, GIB, 0)
    plan = plan_memory(TARGET, engine, GIB, 0, drafters)
    assert plan.num_pages == alone.num_pages
    taken = sum(
        each.weights_bytes
        + (plan.num_pages + each.num_scratch_pages) * each.page_bytes
        + each.activation_bytes
        for each in drafters
    )
    assert alone.headroom_bytes - plan.headroom_bytes == taken
    assert sum(plan.parts.values()) == GIB


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 96), st.integers(0, 8)), min_size=1, max_size=8))
def test_the_buffers_of_any_steps_are_no_larger_than_planned(steps):
    # Widths without padding, which the plan leaves out.
    config = tiny_config(vocab_size=64, hidden_size=64, intermediate_size=96)
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=96)
    executor = native_executor(config, torch.bfloat16)
    # The largest step there is comes last: what it needs must not have been outgrown before.
    for num_tokens, num_logits in [*steps, (96, 32)]:
        run = Run(tuple(range(num_tokens)), 0, (0, 1, 2, 3, 4, 5), min(num_logits, num_tokens))
        executor.forward(batch_from_runs([run]))
        held = sum(buffer.nbytes for buffer in executor._buffers.values())
        assert held <= activation_peak_bytes(program_for(config), limits, Dtype.BFLOAT16)


@pytest.mark.parametrize("script", [all_right, random_wrong(0.5, VOCAB, 1)])
def test_a_hundred_requests_that_draft_leave_every_page_free(script):
    drive = Drive(limits(4, 64), script=script, planner=always(5), prefix_caching=False)
    free = drive.engine.kv_cache.num_free
    for index in range(100):
        asked = request(f"r{index}", max_tokens=1 + index % 13)
        drive.submit(asked)
        drive.finish()
        assert drive.engine.kv_cache.num_free == free
        assert_right(drive, asked)
    assert total(drive, "num_accepted_tokens") > 100


def test_a_prompt_that_leaves_a_twentieth_of_the_pages_is_served_and_others_go_on():
    now_s = iter(0.01 * tick for tick in range(100_000))
    planner = PolicyPlanner(step_times(), sources=Sources(clock=lambda: next(now_s)))
    script = dict.fromkeys(("dflash2", "mtp"), all_right)
    drive = Drive(limits(4, 64), num_pages=40, script=script, planner=planner)
    short = request("short", max_tokens=120)
    drive.submit(short)
    drive.step_until(lambda: len(drive.answer("short").token_ids) > 40)
    # 31 of 40 pages, beside up to nine of the short one.
    long = request("long", prompt=[1 + index % 249 for index in range(480)], max_tokens=12)
    drive.submit(long)
    drive.finish()
    assert_right(drive, short, long)
    assert planner.num_errors == 0
    assert total(drive, "num_accepted_tokens") > 0


def test_memory_that_others_give_back_while_a_model_loads_changes_no_plan(tmp_path, monkeypatch):
    """What somebody else has in use may rise and fall; the pages are a reservation of our own."""
    config = replace(
        drafter_config(tmp_path, max_position_embeddings=512),
        kv_cache=KVCacheConfig(memory_gib=0.02),
    )
    used_gib = iter((7, 7, 7, 2, 2, 2, 2))
    monkeypatch.setattr(
        load,
        "memory_of_this_machine",
        lambda: MachineMemory(8 * GIB, next(used_gib) * GIB, "physical memory"),
    )
    pages = [load_models(config).target.runner.facts.num_pages for _ in range(4)]
    assert len(set(pages)) == 1


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1000), st.booleans()), min_size=1, max_size=12))
def test_no_reading_of_memory_changes_an_id_or_fails_a_request(readings):
    """The device says something else every few steps: full, free, throttled."""
    ticks = {"count": 0}

    def clock() -> float:
        ticks["count"] += 1
        return 0.05 * ticks["count"]

    def reading() -> MemoryReading:
        free, is_throttled = readings[ticks["count"] // 8 % len(readings)]
        return MemoryReading(1000, free, None, is_throttled)

    limited = Limits(dwell_s=0.1, memory=MemoryLimits(escalate_s=0.1, restore_s=0.1))
    planner = PolicyPlanner(
        step_times(), Surroundings(limited), Sources(reading=reading, clock=clock)
    )
    script = dict.fromkeys(("dflash2", "mtp"), all_right)
    drive = Drive(limits(4, 64), script=script, planner=planner)
    asked = [request(f"r{index}", max_tokens=100) for index in range(4)]
    drive.submit(*asked)
    drive.finish()
    assert_right(drive, *asked)
    assert planner.num_errors == 0
    assert all(result.stats.plan_fault is None for result in drive.results)

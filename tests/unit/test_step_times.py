"""Step times: what is measured, and how the policy reads it."""

from dataclasses import replace

import pytest

from benchmarks.rigs.made_up_times import LADDER, measured, step_s, step_times
from benchmarks.rigs.script_drafter import ScriptDrafter
from deployments.step_times import draft_lengths, ladder_of, times_from
from dflash import profile as module_of_profile
from dflash.engine import Engine, StepResult
from dflash.errors import ProfileError
from dflash.profile import LONG_CONTEXT, SHORT_CONTEXT, profile, row_counts
from policy.arms import PLAIN
from tests.rigs.measured_engine import LENGTHS, idle, nothing


@pytest.mark.parametrize(("most", "counts"), [(1, (1,)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))])
def test_rows_go_up_by_doubling_to_the_most(most, counts):
    assert row_counts(most) == counts


def test_every_drafter_length_and_number_of_rows_is_measured_and_nothing_is_left():
    engine, shares = idle(), []
    found = profile(engine, LENGTHS, 64, shares.append)
    keys = {
        (time.drafter, time.draft_length, time.num_rows)
        for time in found.times
        if time.num_context_tokens == SHORT_CONTEXT
    }
    arms = [(PLAIN, 0), ("dflash2", 0), ("dflash2", 1), ("dflash2", 7), ("mtp", 0), ("mtp", 2)]
    assert keys == {(*arm, rows) for arm in arms for rows in (1, 2, 4)}
    assert all(time.seconds > 0.0 for time in found.times)
    assert found.prefill_s > 0.0
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert {time.num_rows for time in found.times if time.num_context_tokens == LONG_CONTEXT} == {4}
    assert not engine.has_work
    engine.check()
    assert engine.counts.num_pages_used == 0


def test_each_time_is_of_steps_that_did_that_and_nothing_else(monkeypatch):
    step = Engine.step

    def lasting(engine: Engine) -> StepResult:
        result = step(engine)
        did = result.stats
        seconds = 0.01 + 0.0005 * did.num_draft_tokens + 0.5 * did.num_catch_up_tokens
        if did.num_prefill_tokens:
            seconds = 0.002 * did.num_prefill_tokens
        return replace(result, stats=replace(did, step_time_s=seconds))

    monkeypatch.setattr(Engine, "step", lasting)
    found = profile(idle(), LENGTHS, 2, nothing)
    assert found.prefill_s == pytest.approx(0.002)
    for time in found.times:
        drafted = time.num_rows * time.draft_length
        assert time.seconds == pytest.approx(0.01 + 0.0005 * drafted), time


def test_pages_for_a_few_rows_are_enough_and_for_none_are_not():
    found = profile(idle(num_pages=50), LENGTHS, 64, nothing)
    assert {(time.num_rows, time.num_context_tokens) for time in found.times} == {
        (1, SHORT_CONTEXT),
        (2, SHORT_CONTEXT),
    }
    with pytest.raises(ProfileError, match=r"engine\.kv_cache\.memory_gib"):
        profile(idle(num_pages=8), LENGTHS, 64, nothing)


def test_long_contexts_are_measured_with_as_many_rows_as_short_ones():
    engine = idle(num_pages=3 * 73 + 10)
    found = profile(engine, LENGTHS, 64, nothing)
    assert {time.num_rows for time in found.times if time.num_context_tokens == LONG_CONTEXT} == {2}
    assert times_from(found, ladder_of(engine)).costs.prefill_s > 0.0


def test_requests_that_end_while_they_are_measured_are_no_table(monkeypatch):
    monkeypatch.setattr(module_of_profile, "_NUM_ROUNDS", 50)
    engine = idle(max_model_len=256)
    with pytest.raises(ProfileError, match=r"raise engine\.max_model_len, which is 256"):
        profile(engine, LENGTHS, 2, nothing)
    assert not engine.has_work


def test_a_model_of_few_positions_is_measured_with_what_it_has():
    found = profile(idle(max_model_len=256), LENGTHS, 2, nothing)
    assert {time.num_context_tokens for time in found.times} == {112}
    assert times_from(found, ladder_of(idle())).costs.grids[PLAIN].contexts == (112, LONG_CONTEXT)
    with pytest.raises(ProfileError, match=r"engine\.max_model_len is 192"):
        profile(idle(max_model_len=192), LENGTHS, 2, nothing)


def test_a_drafter_that_fails_is_no_table_and_leaves_the_engine_idle():
    def fails(row, known):
        raise RuntimeError("no such kernel")

    engine = idle(mtp=fails)
    with pytest.raises(ProfileError, match="no such kernel"):
        profile(engine, LENGTHS, 2, nothing)
    assert not engine.has_work


def test_a_drafter_that_fails_while_prompts_are_computed_leaves_the_engine_idle(monkeypatch):
    def fails(*_):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(ScriptDrafter, "observe", fails)
    engine = idle()
    with pytest.raises(ProfileError, match="no such kernel"):
        profile(engine, LENGTHS, 2, nothing)
    assert not engine.has_work


def test_the_table_says_what_was_measured_and_longer_contexts_cost_more():
    costs = step_times().costs
    assert costs.grids["dflash2"].at(4, 7, SHORT_CONTEXT) == step_s("dflash2", 7, 4)
    # Twice the time of four rows, and eight rows read twice as many tokens as four.
    added = step_s(PLAIN, 0, 4)
    assert costs.grids[PLAIN].at(4, 0, LONG_CONTEXT) == pytest.approx(2 * added)
    assert costs.grids[PLAIN].at(8, 0, LONG_CONTEXT) == pytest.approx(
        step_s(PLAIN, 0, 8) + 2 * added
    )
    costs.check_ladder(LADDER)


def test_keeping_a_context_costs_what_it_adds_to_a_plain_step():
    found = measured()
    times = tuple(
        replace(time, seconds=time.seconds + 0.003)
        if (time.drafter, time.draft_length) == ("mtp", 0)
        else time
        for time in found.times
    )
    read = times_from(replace(found, times=times), LADDER)
    assert read.sync_s("mtp", 4, SHORT_CONTEXT) == pytest.approx(0.003)
    assert read.sync_s("dflash2", 4, SHORT_CONTEXT) == 0.0


@pytest.mark.parametrize(("most", "lengths"), [(1, (1,)), (3, (1, 2, 3)), (7, (1, 3, 5, 7))])
def test_draft_lengths_are_few_and_reach_to_the_most(most, lengths):
    assert draft_lengths(most) == lengths
    assert draft_lengths(6)[-1] == 6

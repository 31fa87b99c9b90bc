"""Step times: what is measured, how the policy reads it, and when it is measured again."""

import errno
import json
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path

import pytest

from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.made_up_times import LADDER, measured, step_s, step_times
from benchmarks.rigs.script_drafter import SCRIPTED, ScriptDrafter
from deployments import step_times as module
from deployments.step_times import draft_lengths, ladder_of, step_times_of, times_from
from dflash import profile as module_of_profile
from dflash.config import EngineLimits
from dflash.engine import Engine, StepResult
from dflash.errors import ProfileError
from dflash.profile import LONG_CONTEXT, SHORT_CONTEXT, StepTime, profile, row_counts
from policy.arms import PLAIN

LENGTHS = {"dflash2": (1, 7), "mtp": (2,)}
SOON_S = 10.0
FIELDS = [field.name for field in fields(StepTime)]


def idle(num_pages: int = 600, max_model_len: int = 2048, **scripts) -> Engine:
    """Return an engine whose drafters say the same of every row, unless a script says more."""
    model = HashLM(num_pages=num_pages, max_model_len=max_model_len)
    drafters = [
        ScriptDrafter(
            model.facts,
            lambda row: (1,) * 7,
            scripts.get(name, lambda row, right: right),
            model=model,
            facts=replace(SCRIPTED, name=name),
        )
        for name in LENGTHS
    ]
    return Engine(model, EngineLimits(max_num_seqs=4), drafters=drafters)


def nothing(_share: float) -> None:
    pass


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


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often anything was measured."""
    counts: list[int] = []
    ladder = ladder_of(idle())

    def measure(*_):
        counts.append(1)
        return measured(ladder)

    monkeypatch.setattr(module, "profile", measure)
    return counts


def test_times_are_kept_under_all_they_depend_on(tmp_path, counted):
    engine = idle()
    first = step_times_of(engine, {"model": "a"}, tmp_path, nothing)
    assert step_times_of(engine, {"model": "a"}, tmp_path, nothing) == first
    assert len(counted) == 1
    step_times_of(engine, {"model": "b"}, tmp_path, nothing)
    assert len(counted) == 2


def first_row(content: str, **places) -> str:
    """Return a file whose first row has other values."""
    read = json.loads(content)
    for place, value in places.items():
        read["times"][0][FIELDS.index(place)] = value
    return json.dumps(read)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: "",
        lambda content: content[: len(content) // 2],
        lambda content: "[" * 100_000,
        lambda content: "[]",
        lambda content: json.dumps({**json.loads(content), "times": [[1]]}),
        lambda content: json.dumps({**json.loads(content), "times": []}),
        lambda content: content.replace('"times": [[', '"times": [["plain", 0, 2, 128, 0.01], ['),
        lambda content: json.dumps({**json.loads(content), "key": "another"}),
        lambda content: json.dumps({**json.loads(content), "prefill_s": float("nan")}),
        lambda content: content.replace("0.0101", "-1.0"),
        lambda content: first_row(content, seconds="soon"),
        lambda content: first_row(content, seconds=float("nan")),
        lambda content: first_row(content, seconds=float("inf")),
        lambda content: first_row(content, seconds=10**400),
        lambda content: first_row(content, num_rows="1"),
        lambda content: first_row(content, drafter="eagle"),
        lambda content: first_row(content, drafter=[]),
        lambda content: json.dumps({**json.loads(content), "clock_mhz": "fast"}),
        lambda content: json.dumps({**json.loads(content), "clock_mhz": -1}),
    ],
)
def test_a_damaged_file_is_measured_again_and_mended(tmp_path, counted, damage):
    engine = idle()
    step_times_of(engine, {}, tmp_path, nothing)
    (path,) = tmp_path.glob("*.json")
    path.write_text(damage(path.read_text()))
    step_times_of(engine, {}, tmp_path, nothing)
    assert len(counted) == 2
    step_times_of(engine, {}, tmp_path, nothing)
    assert len(counted) == 2


def test_a_folder_that_cannot_be_written_costs_the_next_start_and_says_what_to_set(
    tmp_path, counted, caplog
):
    (tmp_path / "file").write_text("")
    engine = idle()
    first = step_times_of(engine, {}, tmp_path / "file", nothing)
    assert step_times_of(engine, {}, tmp_path / "file", nothing) == first
    assert len(counted) == 2
    assert "engine.cache_dir" in caplog.text


def test_times_that_cannot_be_kept_are_used_and_nothing_of_them_stays(
    tmp_path, counted, monkeypatch, caplog
):
    def full(*_):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(Path, "replace", full)
    assert step_times_of(idle(), {}, tmp_path, nothing).costs.prefill_s > 0.0
    assert len(counted) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    assert "its file system is full" in caplog.text


def test_replicas_that_start_together_measure_one_after_the_other(
    tmp_path, counted, monkeypatch, caplog
):
    caplog.set_level(logging.INFO)
    started, ends, waits = threading.Event(), threading.Event(), threading.Event()
    measure, say = module.profile, module._say_who_measures

    def slow(*arguments):
        started.set()
        assert ends.wait(SOON_S)
        return measure(*arguments)

    def said(holder: str) -> None:
        say(holder)
        waits.set()

    monkeypatch.setattr(module, "profile", slow)
    monkeypatch.setattr(module, "_say_who_measures", said)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(step_times_of, idle(), {}, tmp_path, nothing)
        assert started.wait(SOON_S)
        second = pool.submit(step_times_of, idle(), {}, tmp_path, nothing)
        assert waits.wait(SOON_S)
        ends.set()
        assert second.result(SOON_S) == first.result(SOON_S)
    assert len(counted) == 1
    assert f"process {os.getpid()} measures step times" in caplog.text


def test_a_folder_that_only_holds_tables_need_not_be_written(tmp_path, counted, monkeypatch):
    first = step_times_of(idle(), {}, tmp_path, nothing)
    monkeypatch.setattr(module, "exclusive", None)
    assert step_times_of(idle(), {}, tmp_path, nothing) == first


def test_the_clock_they_were_measured_at_is_kept_with_them(tmp_path, monkeypatch):
    ladder, clocks = ladder_of(idle()), iter((1980, None, 1400, 1975))

    def measure(_engine, _lengths, _most, on_progress):
        for _ in range(4):
            on_progress(0.5)
        return measured(ladder)

    monkeypatch.setattr(module, "profile", measure)
    first = step_times_of(idle(), {}, tmp_path, nothing, lambda: next(clocks))
    assert first.clock_mhz == 1975
    assert step_times_of(idle(), {}, tmp_path, nothing) == first

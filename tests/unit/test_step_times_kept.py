"""Step times on disk: when they are measured again, by whom, and what cannot be read or kept."""

import errno
import json
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import pytest

from benchmarks.rigs.made_up_times import measured
from deployments import step_times as module
from deployments.step_times import ladder_of, step_times_of
from dflash.profile import StepTime
from tests.rigs.measured_engine import idle, nothing

SOON_S = 10.0
FIELDS = [field.name for field in fields(StepTime)]


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

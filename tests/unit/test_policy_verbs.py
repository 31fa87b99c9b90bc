"""`dflashctl replay` and `dflashctl explain`: what they print, and what they say of bad files."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deployments import cli
from deployments.decision_record import DecisionRecord, Made
from deployments.operators.words import sentence_of
from deployments.timeline import timeline
from policy.arms import Arm
from policy.decision import first_decision
from policy.header import VERSION, FileKind, Header
from policy.json_form import as_json, from_json
from policy.log import LogEntry
from policy.pins import Pin
from policy.readings import MemoryReading
from policy.recording import Recorded
from tests.rigs.policy_world import World, terms

ROOT = Path(__file__).parents[2]
EXAMPLE_HEADER = Header(FileKind.DECISIONS, VERSION, "a", 0.0)


def lived() -> World:
    here = World(terms(), {"dflash2": 0.9, "mtp": 0.8})
    here.run(20.0, rows=2)
    here.run(10.0, rows=4, reading=MemoryReading(1000, 1, None))
    here.run(20.0, rows=2, reading=MemoryReading(1000, 900, None))
    here.run(3.0, rows=2, pin=Pin(Arm("mtp", 2), ("a",), "ops", "comparing", 1e9))
    return here


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What a replica has kept of a minute."""
    folder, here = tmp_path_factory.mktemp("kept"), lived()
    record = DecisionRecord("a", folder, keeps_signals=True, clock=lambda: 0.0)
    record.start()
    last = first_decision(here.terms, 0.0)
    for signals, decision in zip(here.signals, here.decisions, strict=True):
        record.note(Made(last, signals, here.terms, decision))
        last = decision
    record.stop()
    assert record.num_lost == 0
    return folder


@pytest.fixture
def signals(folder, tmp_path):
    """A copy of the signals file, to be damaged."""
    copy = tmp_path / "signals.jsonl"
    copy.write_text((folder / "signals-a.jsonl").read_text())
    return copy


def test_a_replay_that_agrees_says_how_many_and_ends_with_0(signals, capsys):
    assert cli.main(["replay", str(signals)]) == 0
    count = len(lived().decisions)
    assert f"{count} decisions made again, all the same to the bit" in capsys.readouterr().out


def test_the_first_decision_that_differs_is_named_and_ends_with_1(signals, capsys):
    lines = signals.read_text().splitlines(keepends=True)
    record = from_json(Recorded, lines[9])
    lines[9] = as_json(replace(record, signals=replace(record.signals, num_decoding=64))) + "\n"
    signals.write_text("".join(lines))
    assert cli.main(["replay", str(signals)]) == 1
    told = capsys.readouterr().out
    # A header and the terms come before the first one.
    assert f"{signals}: line 10: decision 8 is the first that differs" in told
    assert f"then  {record.arm.name}" in told


def test_a_difference_in_what_was_learnt_alone_is_told_as_such(signals, capsys):
    lines = signals.read_text().splitlines(keepends=True)
    record = from_json(Recorded, lines[9])
    lines[9] = as_json(replace(record, digest="0" * 32)) + "\n"
    signals.write_text("".join(lines))
    assert cli.main(["replay", str(signals)]) == 1
    assert "The plans are alike" in capsys.readouterr().out


def damaged(text: str, line: int, instead: str) -> str:
    lines = text.splitlines(keepends=True)
    lines[line - 1] = instead
    return "".join(lines)


def figure(text: str, name: str, value: object) -> str:
    """Return a file in which a value has become another, at its first place."""
    return re.sub(rf'"{name}":[^,}}\]]+', f'"{name}":{value}', text, count=1)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda text: "", "the file is empty"),
        (lambda text: damaged(text, 5, "what is this\n"), "line 5: "),
        (lambda text: damaged(text, 5, "what is this\n"), "head -n 4"),
        (lambda text: text.replace('"version":1', '"version":99', 1), "line 1: version 99"),
        (lambda text: "".join(text.splitlines(keepends=True)[1:]), "line 1: "),
        (lambda text: "".join(text.splitlines(keepends=True)[:1]), "holds no decision"),
        (lambda text: as_json(EXAMPLE_HEADER) + "\n", "'dflashctl explain' reads it"),
        (lambda text: "\x00\xff binary", "line 1"),
        (
            lambda text: figure(text, "num_emitted_tokens", 10**400),
            "line 3: no decision comes of it",
        ),
        (lambda text: figure(text, "now_s", "NaN"), "line 3: this line is no Recorded"),
        (lambda text: figure(text, "exploration_share", 10**400), "line 2: this line is no Start"),
        (lambda text: "\n".join([text.splitlines()[0], "[" * 100_000, ""]), "line 2: this line"),
    ],
)
def test_a_file_that_makes_no_sense_is_named_with_its_line_and_ends_with_2(
    damage, told, signals, capsys
):
    signals.write_text(damage(signals.read_text()), encoding="latin-1")
    assert cli.main(["replay", str(signals)]) == 2
    message = capsys.readouterr()
    assert str(signals) in message.err
    assert told in message.err
    assert not message.out


def test_a_last_line_that_was_cut_off_is_told_and_the_others_are_replayed(signals, capsys):
    text = signals.read_text()
    signals.write_text(text[:-40])
    assert cli.main(["replay", str(signals)]) == 0
    message = capsys.readouterr()
    assert f"line {len(text.splitlines())} is cut off" in message.err
    assert f"{len(lived().decisions) - 1} decisions" in message.out


@pytest.mark.parametrize("verb", ["replay", "explain"])
def test_a_file_that_is_not_there_is_named(verb, tmp_path, capsys):
    assert cli.main([verb, str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl: cannot be read: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"), [("at_s", -1e308), ("value", 10**400), ("lower", 1e308), ("ledger_s", "NaN")]
)
def test_figures_that_no_replica_writes_are_told_as_such(name, value, folder, tmp_path, capsys):
    path = tmp_path / "decisions.jsonl"
    path.write_text(figure((folder / "decisions-a.jsonl").read_text(), name, value))
    assert cli.main(["explain", str(path)]) == 2
    message = capsys.readouterr()
    assert str(path) in message.err
    assert not message.out


@pytest.fixture
def explained(folder, capsys) -> str:
    assert cli.main(["explain", str(folder / "decisions-a.jsonl")]) == 0
    return capsys.readouterr().out


def test_the_picture_shows_what_ran_when_and_how_short_memory_was(explained):
    rows = {line.split()[0]: line.split()[1] for line in explained.splitlines()[2:7]}
    assert set(rows) == {"dflash2", "mtp", "plain", "trials", "memory"}
    assert {len(row) for row in rows.values()} == {60}
    red = {column for column, mark in enumerate(rows["memory"]) if mark == "R"}
    assert red
    assert all(rows["plain"][column] == "#" for column in red)
    # One of them runs at any time.
    for column in range(60):
        assert [rows[name][column] for name in ("dflash2", "mtp", "plain")].count("#") == 1
    assert "^" in rows["trials"]
    assert rows["mtp"].endswith("#")


def test_each_change_is_told_with_its_worths_and_what_was_kept_back(explained):
    blocks = explained.split("\n\n")
    (first,) = [block for block in blocks if "plain -> dflash2:7  faster" in block]
    assert "2 decoding, 0 waiting" in first
    assert "measured later: dflash2:7 is" in first
    runs = next(line for line in first.splitlines() if line.endswith("runs"))
    assert runs.split()[0] == "dflash2:7"
    assert "(at least " in runs
    assert any("kept back: confirming" in block for block in blocks)
    assert any("memory red, given up: drafting" in block for block in blocks)
    assert any("pinned by ops" in block for block in blocks)
    assert any("(believed " in block for block in blocks)


def test_a_drafter_that_begins_with_newcomers_says_beside_whom(folder):
    header, *rest = (folder / "decisions-a.jsonl").read_text().splitlines()
    entry = replace(from_json(LogEntry, rest[0]), taking_over=Arm("mtp", 2))
    text = timeline(from_json(Header, header), [entry])
    assert "begins with newcomers; the others go on with mtp:2" in text
    assert "all decode alike" not in text
    over = replace(entry, arm_from=entry.arm_to, taking_over=None)
    assert "has taken over: all decode alike" in timeline(from_json(Header, header), [entry, over])
    assert sentence_of(entry).endswith("the others go on with mtp:2.")
    assert sentence_of(replace(entry, taking_over=Arm())).endswith("the others go on plainly.")


def test_hours_are_those_of_the_wall(folder, explained):
    header, entry = (folder / "decisions-a.jsonl").read_text().splitlines()[:2]
    at_s = from_json(Header, header).clock_offset_s + from_json(LogEntry, entry).at_s
    assert at_s > 1.7e9
    began = datetime.fromtimestamp(at_s, UTC)
    assert began.strftime("%Y-%m-%d %H:%M:%S") in explained.splitlines()[0]


def test_a_log_without_a_change_and_one_with_a_single_change_are_told(folder, tmp_path, capsys):
    header, entry = (folder / "decisions-a.jsonl").read_text().splitlines()[:2]
    path = tmp_path / "short.jsonl"
    path.write_text(header + "\n")
    assert cli.main(["explain", str(path)]) == 0
    assert "no change of plan yet" in capsys.readouterr().out
    path.write_text(header + "\n" + entry + "\n")
    assert cli.main(["explain", str(path)]) == 0
    assert "replica a, 1 entry, " in capsys.readouterr().out


def test_explain_names_a_line_that_is_none(folder, tmp_path, capsys):
    path = tmp_path / "bad.jsonl"
    path.write_text(damaged((folder / "decisions-a.jsonl").read_text(), 3, '{"at_s": "soon"}\n'))
    assert cli.main(["explain", str(path)]) == 2
    assert "line 3: this line is no LogEntry" in capsys.readouterr().err
    assert cli.main(["explain", str(folder / "signals-a.jsonl")]) == 2
    assert "'dflashctl replay' reads it" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_error(folder):
    program = "import sys; from deployments.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "explain", str(folder / "decisions-a.jsonl")]
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, cwd=ROOT, text=True)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (141, "")

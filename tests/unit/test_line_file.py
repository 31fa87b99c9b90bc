"""A file of lines: bounded, whole, and never in anybody's way."""

import threading
from pathlib import Path

import pytest

from deployments.line_file import LineFile, aside
from deployments.whole_lines import whole_lines
from dflash.errors import ConfigError

LEAST = 1 << 16


def numbered(item: int, is_first: bool) -> str:
    return ("header\n" if is_first else "") + f"{item:0999d}\n"


def written(path: Path, items, text_of=numbered, **options) -> LineFile[int]:
    file = LineFile(path, text_of, LEAST, **options)
    file.start()
    for item in items:
        file.put(item)
    file.stop()
    return file


def items_in(path: Path) -> list[int]:
    first, *lines = path.read_text().splitlines()
    assert first == "header"
    return [int(line) for line in lines]


def test_what_is_put_is_written_in_order_behind_one_header(tmp_path):
    file = written(tmp_path / "new" / "a.jsonl", range(20))
    assert items_in(tmp_path / "new" / "a.jsonl") == list(range(20))
    assert file.num_lost == 0


def test_both_files_together_stay_within_the_bound_and_hold_the_newest(tmp_path):
    path = tmp_path / "a.jsonl"
    written(path, range(500))
    older, newer = items_in(aside(path)), items_in(path)
    assert (older + newer)[-1] == 499
    assert older + newer == list(range((older + newer)[0], 500))
    assert aside(path).stat().st_size + path.stat().st_size <= LEAST
    assert len(older) > 25
    assert {file.name for file in tmp_path.iterdir()} == {"a.jsonl", "a.1.jsonl"}


def test_what_another_run_wrote_is_moved_aside_and_not_continued(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("half a li")
    written(path, [7])
    assert aside(path).read_text() == "half a li"
    assert items_in(path) == [7]


def test_one_item_that_cannot_be_written_costs_no_other(tmp_path, caplog):
    def text_of(item: int, is_first: bool) -> str:
        if item == 1:
            raise ValueError("out of range")
        return numbered(item, is_first) * (100 if item == 2 else 1)

    file = written(tmp_path / "a.jsonl", range(5), text_of)
    assert items_in(tmp_path / "a.jsonl") == [0, 3, 4]
    assert file.num_lost == 2
    assert "out of range" in caplog.text
    assert "over half of the file's bound" in caplog.text


def test_a_disk_that_refuses_is_left_alone_for_a_while_and_tried_again(tmp_path, caplog):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    now_s = 0.0

    def text_of(item: int, is_first: bool) -> str:
        nonlocal now_s
        if item == 1:
            # The next one comes after the pause, and finds the way free.
            blocked.unlink()
            now_s += 11.0
        return numbered(item, is_first)

    def clock() -> float:
        nonlocal now_s
        now_s += 4.0
        return now_s

    file = written(blocked / "a.jsonl", [0, 0, 0, 1, 2], text_of, clock=clock)
    assert items_in(blocked / "a.jsonl")[-1] == 2
    assert 1 <= file.num_lost <= 3
    assert "its lines are lost meanwhile" in caplog.text


def test_a_disk_that_hangs_holds_nobody_up(tmp_path):
    hangs, seen = threading.Event(), []

    def text_of(item: int, is_first: bool) -> str:
        hangs.wait()
        seen.append(item)
        return "line\n"

    file = LineFile(tmp_path / "a.jsonl", text_of, LEAST)
    file.start()
    for item in range(3000):
        file.put(item)
    assert file.num_lost >= 3000 - 1024 - 1
    hangs.set()
    file.stop()
    assert len(seen) == 3000 - file.num_lost
    assert seen[:3] == [0, 1, 2]


def test_a_bound_that_holds_nothing_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"max_bytes of a\.jsonl must be 65536 or more, got 10"):
        LineFile(tmp_path / "a.jsonl", numbered, 10)


def test_a_last_line_that_was_cut_off_is_named_and_left_out(tmp_path, capsys):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a":1}\n{"a":2}\n{"a":')
    assert list(whole_lines(path)) == ['{"a":1}\n', '{"a":2}\n']
    told = capsys.readouterr().err
    assert "line 3 is cut off" in told
    assert "head -n 2" in told


def test_a_last_line_without_its_end_is_whole_if_it_reads(tmp_path, capsys):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a":1}\n{"a":2}')
    assert list(whole_lines(path)) == ['{"a":1}\n', '{"a":2}']
    assert not capsys.readouterr().err

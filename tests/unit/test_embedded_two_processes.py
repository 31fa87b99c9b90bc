import subprocess
import sys
from pathlib import Path

import pytest

from dflash.cache_folder import exclusive
from dflash.models.embedded import PHASE, ensure_converted
from tests.rigs.tiny_gguf import tiny_source

ROOT = Path(__file__).parents[2]


def start(verb: str, tmp_path: Path) -> subprocess.Popen:
    paths = (str(tmp_path / "package.gguf"), str(tmp_path / "tiny"))
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "tests.rigs.convert_tiny", verb, *paths],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_of_two_processes_one_converts_and_both_say_whom_they_wait_for(tmp_path):
    tiny_source(tmp_path / "package.gguf")
    # Both are made to wait for this process, so that they compete for sure once it lets go.
    with exclusive(tmp_path / "tiny.lock", on_wait=pytest.fail):
        processes = [start("convert", tmp_path) for _ in range(2)]
        first_lines = [process.stdout.readline() for process in processes]
    outputs = [process.communicate(timeout=60)[0] for process in processes]

    assert all(line.startswith("waiting for process ") for line in first_lines), first_lines
    assert [process.returncode for process in processes] == [0, 0]
    assert sum(PHASE in line for text in outputs for line in text.splitlines()) == 1, outputs
    assert all(text.endswith("done\n") for text in outputs)


def test_a_killed_holder_of_the_lock_keeps_nobody_waiting(tmp_path):
    process = start("hold-lock", tmp_path)
    assert process.stdout.readline() == "held\n"
    process.kill()
    process.communicate(timeout=60)

    with exclusive(tmp_path / "tiny.lock", on_wait=pytest.fail):
        pass


def test_what_a_killed_conversion_left_is_cleared_by_the_next(tmp_path):
    source = tiny_source(tmp_path / "package.gguf")
    process = start("die-halfway", tmp_path)
    process.communicate(timeout=60)
    assert process.returncode == 9
    assert sorted(path.name for path in tmp_path.glob("tiny*")) == ["tiny.lock", "tiny.partial"]

    ensure_converted(source, tmp_path / "tiny")

    assert sorted(path.name for path in tmp_path.glob("tiny*")) == ["tiny", "tiny.lock"]

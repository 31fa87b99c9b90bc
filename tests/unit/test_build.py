"""Kernels are compiled once, by whatever compiler there is, or their absence is explained."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dflash.kernels import build

ROOT = Path(__file__).parents[2]


@pytest.fixture
def compiled_into(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "default_cache_dir", lambda: tmp_path)
    return tmp_path / "kernels"


def fresh():
    """A build that no earlier call in this process has answered."""
    return build.native_build.__wrapped__()


def test_a_second_build_reuses_the_first(compiled_into, monkeypatch):
    if fresh().library is None:
        pytest.skip("no C compiler")
    names = sorted(entry.name for entry in compiled_into.iterdir())
    monkeypatch.setattr(build, "_compile", lambda *_: pytest.fail("compiled again"))

    assert fresh().library is not None
    assert sorted(entry.name for entry in compiled_into.iterdir()) == names


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.9])
def test_a_damaged_library_is_built_again_before_it_is_loaded(compiled_into, kept):
    # In a process of its own: a library that is loaded already would hide a damaged file.
    script = (
        "from pathlib import Path; from dflash.kernels import build;"
        f"build.default_cache_dir = lambda: Path({str(compiled_into.parent)!r});"
        "print(build.native_build().library is not None)"
    )
    run = [sys.executable, "-c", script]
    first = subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT)
    if "True" not in first.stdout:
        pytest.skip("no C compiler")
    (library,) = compiled_into.glob("*.so")
    whole = library.read_bytes()
    library.write_bytes(whole[: int(len(whole) * kept)])

    again = subprocess.run(run, capture_output=True, text=True, check=False, cwd=ROOT)

    assert again.returncode == 0, again.stderr
    assert "True" in again.stdout
    assert len(library.read_bytes()) == len(whole)


def test_kernels_that_are_built_otherwise_have_another_fingerprint(compiled_into, monkeypatch):
    here = fresh()
    if here.library is None:
        pytest.skip("no C compiler")
    assert [path.stem for path in compiled_into.glob("*.so")] == [f"libdflash-{here.key}"]

    def fingerprint(of: build.NativeBuild) -> str:
        monkeypatch.setattr(build, "native_build", lambda: of)
        return build.kernels_fingerprint()

    other = replace(here, key="of other sources or flags")
    without = build.NativeBuild(None, "no C compiler was found")
    assert fingerprint(here) == fingerprint(here)
    assert len({fingerprint(each) for each in (here, other, without)}) == 3


def test_a_compiler_that_does_not_end_is_explained(compiled_into, monkeypatch, tmp_path):
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nsleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("CC", str(slow))
    monkeypatch.setattr(build, "_COMPILE_TIMEOUT_S", 1)

    assert "took over 1 s" in fresh().why_unavailable
    assert not compiled_into.exists()


def test_a_compiler_can_have_arguments(compiled_into, monkeypatch):
    if fresh().library is None:
        pytest.skip("no C compiler")
    monkeypatch.setenv("CC", "cc -pipe")

    assert fresh().library is not None


def test_a_missing_compiler_is_explained(compiled_into, monkeypatch):
    monkeypatch.setenv("CC", "a-compiler-that-is-not-there")

    assert fresh().library is None
    assert "install gcc" in fresh().why_unavailable
    assert not compiled_into.exists()


def test_a_compiler_that_fails_is_explained_and_leaves_nothing(compiled_into, monkeypatch):
    monkeypatch.setenv("CC", "false")

    assert fresh().library is None
    assert "failed" in fresh().why_unavailable
    assert not list(compiled_into.glob("*"))


def test_kernels_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("DFLASH_NATIVE", "0")

    assert fresh().why_unavailable == "DFLASH_NATIVE=0 is set"


def test_a_cache_folder_that_cannot_be_made_is_named(compiled_into):
    compiled_into.parent.joinpath("kernels").write_text("in the way")

    built = fresh()

    assert built.library is None
    assert "DFLASH_CACHE_DIR" in built.why_unavailable


def test_the_library_shares_torchs_threads(compiled_into):
    built = fresh()
    if built.library is None:
        pytest.skip("no C compiler")
    wanted = subprocess.run(
        ["readelf", "-d", built.library._name], capture_output=True, text=True, check=False
    )
    if wanted.returncode:
        pytest.skip("readelf is not there")
    names = [line for line in wanted.stdout.splitlines() if "NEEDED" in line and "gomp" in line]
    assert len(names) == 1

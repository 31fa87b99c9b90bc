import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKE = shutil.which("make")

pytestmark = pytest.mark.skipif(MAKE is None, reason="make is not installed")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def make(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # The variables of a make that runs these tests must not reach the one under test.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    return subprocess.run(
        [str(MAKE), *arguments],
        cwd=folder,
        env=inherited | environment,
        check=False,
        capture_output=True,
        text=True,
    )


def installed_checkout(folder: Path) -> Path:
    """Pretend that everything was installed after the files that ask for it changed."""
    (folder / ".venv").mkdir()
    inputs = ("pyproject.toml", "constraints.txt")
    stamps = (".venv/.created", ".venv/.installed", ".venv/.installed-test")
    for age, name in enumerate((*inputs, *stamps)):
        path = folder / name
        path.touch()
        os.utime(path, (1_000_000 + age, 1_000_000 + age))
    return folder


def test_make_alone_names_every_verb(checkout: Path):
    printed = make(checkout).stdout
    for verb in ("setup", "serve", "test", "check", "bench"):
        assert f"make {verb} " in printed


def test_a_machine_without_a_supported_python_is_told_which_to_install(
    checkout: Path, tmp_path: Path
):
    empty = tmp_path / "bin"
    empty.mkdir()
    ran = make(checkout, "setup", PATH=str(empty))
    assert ran.returncode != 0
    assert "no Python 3.11, 3.12 or 3.13" in ran.stderr
    assert "make PYTHON=" in ran.stderr


def test_an_interpreter_of_another_version_is_refused_by_name(checkout: Path, tmp_path: Path):
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    ran = make(checkout, "setup", f"PYTHON={old}")
    assert ran.returncode != 0
    assert f"PYTHON={old} is not Python 3.11" in ran.stderr


def test_a_second_test_run_installs_nothing(checkout: Path):
    assert "pip install" not in make(installed_checkout(checkout), "--dry-run", "test").stdout


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_a_changed_requirement_is_installed_before_the_next_run(checkout: Path, changed: str):
    os.utime(installed_checkout(checkout) / changed, (2_000_000, 2_000_000))
    assert "pip install" in make(checkout, "--dry-run", "test").stdout


@pytest.mark.parametrize("given", ["given", "default"])
def test_torch_comes_from_the_named_index_only_where_one_is_named(checkout: Path, given: str):
    arguments = ["TORCH_INDEX=https://index.example"] if given == "given" else []
    printed = make(checkout, "--dry-run", "setup", *arguments).stdout
    torch_line = next(line for line in printed.splitlines() if line.endswith(" torch"))
    assert ("--index-url https://index.example" in torch_line) is (given == "given")


def check_port(config: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "scripts" / "check_port.py", config]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_a_port_in_use_is_named_with_the_setting_that_moves_it(tmp_path: Path):
    config = tmp_path / "serve.yaml"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        config.write_text(f"http_options: {{host: 127.0.0.1, port: {port}}}\n")
        ran = check_port(config)
    assert ran.returncode == 1
    assert f"port {port} is in use" in ran.stderr
    assert f"http_options.port in {config}" in ran.stderr


def test_a_free_port_is_passed_over_in_silence(tmp_path: Path):
    with socket.socket() as taken_for_a_moment:
        taken_for_a_moment.bind(("127.0.0.1", 0))
        port = taken_for_a_moment.getsockname()[1]
    config = tmp_path / "serve.yaml"
    config.write_text(f"http_options: {{host: 127.0.0.1, port: {port}}}\n")
    ran = check_port(config)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")

"""What a training run refuses to write: over another's files, or numbers that are not finite."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dflash.errors import EngineError
from dflash.train.__main__ import main
from dflash.train.export import export_drafter
from dflash.train.finite import DivergedError, check_loss
from dflash.train.run_state import RunState, load_state, save_state
from tests.rigs.fit_run import arguments, write_target


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_target(tmp_path / "target")


@pytest.fixture
def state(tmp_path: Path, target: Path) -> RunState:
    assert main(arguments(tmp_path, target, steps=1)) == 0
    found = load_state(tmp_path / "run")
    assert found is not None
    return found


def named(fit: list[str], option: str, value: object) -> list[str]:
    """The command line with another value of an option."""
    place = fit.index(option) + 1
    return [*fit[:place], str(value), *fit[place + 1 :]]


@pytest.mark.parametrize("beside", ["", ".partial", ".outdated"])
def test_an_export_over_anything_else_is_refused_and_deletes_nothing(
    tmp_path: Path, target: Path, caplog: pytest.LogCaptureFixture, beside: str
) -> None:
    thesis = tmp_path / f"drafter{beside}" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("years of work")
    fit = arguments(tmp_path, target, steps=1)
    assert main(fit) == 1
    assert f"--export {tmp_path}/drafter would delete {thesis}" in caplog.text
    assert main(named(fit, "--export", tmp_path / "elsewhere")) == 0
    out = ["export", "--run", str(tmp_path / "run"), "--out", str(tmp_path / "drafter")]
    assert main(out) == 1
    assert f"--out {tmp_path}/drafter would delete {thesis}" in caplog.text
    assert thesis.read_text() == "years of work"


@pytest.mark.parametrize("name", [".", "..", "/"])
def test_an_export_around_the_working_folder_is_refused(
    tmp_path: Path, target: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    assert main(named(arguments(tmp_path, target, steps=1), "--export", name)) == 1
    assert f"--export {name} is the folder this program runs in" in caplog.text


@pytest.mark.parametrize("option", ["--export", "--run"])
def test_a_file_is_no_folder(
    tmp_path: Path, target: Path, caplog: pytest.LogCaptureFixture, option: str
) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "inside"):
        assert main(named(arguments(tmp_path, target, steps=1), option, path)) == 1
        assert f"{option} {path}: {tmp_path}/file is a file" in caplog.text


@pytest.mark.parametrize(
    ("option", "place"),
    [
        ("--export", "run"),
        ("--export", "run/drafter"),
        ("--export", "sequences/../sequences/drafter"),
        ("--run", "sequences"),
        ("--run", "sequences/run"),
    ],
)
def test_what_is_written_lies_apart_from_what_is_read(
    tmp_path: Path, target: Path, caplog: pytest.LogCaptureFixture, option: str, place: str
) -> None:
    assert main(named(arguments(tmp_path, target, steps=1), option, tmp_path / place)) == 1
    assert f"{option} {tmp_path / place} and --" in caplog.text
    assert f"name another folder for {option}" in caplog.text


def test_an_export_into_the_folder_of_its_run_is_refused(
    tmp_path: Path, state: RunState, caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["export", "--run", str(tmp_path / "run"), "--out", str(tmp_path / "run")]) == 1
    assert "name another folder for --out" in caplog.text
    assert (tmp_path / "run" / "checkpoint.pt").exists()


def test_an_export_through_a_link_keeps_the_link(tmp_path: Path, state: RunState) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "drafter")
    export_drafter(state, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "drafter" / "config.json").exists()


def test_a_run_that_took_no_step_leaves_the_drafter_that_is_there(
    tmp_path: Path, state: RunState, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (tmp_path / "drafter" / "model.safetensors").read_bytes()

    def fail(*_: object) -> None:
        raise EngineError("no step was taken")

    monkeypatch.setattr("dflash.train.trainer.Trainer.train_step", fail)
    fit = named(arguments(tmp_path, target, steps=1), "--run", tmp_path / "new")
    assert main([*fit, "--seed", "9"]) == 1
    assert (tmp_path / "new" / "checkpoint.pt").exists()
    assert (tmp_path / "drafter" / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("name", ["run", "drafter"])
def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, state: RunState, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    write = {"run": lambda: save_state(tmp_path / "run", state)}
    write["drafter"] = lambda: export_drafter(state, tmp_path / "drafter")
    with pytest.raises(EngineError, match=f"cannot write into .*/{name} .*No space left"):
        write[name]()


def test_a_run_that_diverges_keeps_its_last_state_its_curve_and_its_drafter(
    tmp_path: Path, state: RunState, target: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = [tmp_path / "run" / "checkpoint.pt", tmp_path / "drafter" / "model.safetensors"]
    before = [path.read_bytes() for path in kept]
    fit = arguments(tmp_path, target, steps=60)
    assert main([*fit, "--learning-rate", "1e30", "--save-s", "1000"]) == 1
    assert "training diverged at step" in caplog.text
    assert "lower --learning-rate; the last state saved is kept" in caplog.text
    assert kept[1].read_bytes() == before[1]
    found = load_state(tmp_path / "run")
    assert found is not None
    assert found.step == state.step
    assert "NaN" not in (tmp_path / "run" / "curve.jsonl").read_text()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_parameters_that_are_not_finite_are_neither_saved_nor_exported(
    tmp_path: Path, state: RunState, value: float
) -> None:
    spoilt = replace(state, drafter={**state.drafter, "norm.weight": torch.full((64,), value)})
    for write in (
        lambda: save_state(tmp_path / "run", spoilt),
        lambda: export_drafter(spoilt, tmp_path / "drafter"),
    ):
        with pytest.raises(DivergedError, match=r"at step 1: norm\.weight holds"):
            write()
    assert load_state(tmp_path / "run") is not None


@pytest.mark.parametrize(
    ("loss", "grad_norm"), [(float("nan"), 1.0), (float("inf"), 1.0), (1.0, float("inf"))]
)
def test_a_step_of_which_either_number_is_not_finite_is_refused(loss: float, grad_norm: float):
    with pytest.raises(DivergedError, match=r"diverged at step 7: .*lower --learning-rate"):
        check_loss(7, loss, grad_norm)

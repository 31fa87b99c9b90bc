"""What a run that goes on checks: its state, its options and its sequences."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dflash.train.__main__ import main
from dflash.train.run_state import load_state, save_state
from tests.rigs.fit_run import arguments, write_target


@pytest.fixture
def begun(tmp_path: Path) -> list[str]:
    fit = arguments(tmp_path, write_target(tmp_path / "target"), steps=1)
    assert main(fit) == 0
    return fit


@pytest.mark.parametrize(
    ("option", "value", "found"),
    [
        ("--layers", 2, 1),
        ("--block-size", 4, 8),
        ("--window", 64, 512),
        ("--selector-rank", 8, 4),
        ("--draft-vocab-size", 310, 300),
        ("--mask-token-id", 4, 3),
        ("--seed", 7, 0),
    ],
)
def test_options_other_than_the_runs_are_refused(
    begun: list[str], caplog: pytest.LogCaptureFixture, option: str, value: int, found: int
) -> None:
    assert main([*begun, option, str(value)]) == 1
    assert f"{option} is {value}, and --run " in caplog.text
    assert f"was begun with {found};" in caplog.text


def test_options_left_out_are_the_runs(begun: list[str], tmp_path: Path) -> None:
    place = begun.index("--layers")
    assert main([*begun[:place], *begun[place + 2 :], "--window", "512"]) == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: {"optimiser": {"state": {}, "param_groups": []}}, "another optimiser"),
        (lambda s: {"drafter": {"norm.weight": s.drafter["norm.weight"]}}, "is missing"),
        (lambda s: {"shortlist": s.shortlist.flip(0)}, "shortlist is out of order"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(
    begun: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture, change, words: str
) -> None:
    state = load_state(tmp_path / "run")
    assert state is not None
    save_state(tmp_path / "run", replace(state, **change(state)))
    assert main(begun) == 1
    assert words in caplog.text
    export = ["export", "--run", str(tmp_path / "run"), "--out", str(tmp_path / "again")]
    # An export needs no optimiser.
    assert main(export) == int("optimiser" not in words)


def test_a_pickle_that_is_no_state_is_refused(
    begun: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for content in (pickle.dumps(torch.device, protocol=2), b"garbage", b""):
        (tmp_path / "run" / "checkpoint.pt").write_bytes(content)
        assert main(begun) == 1
        assert "remove it to start the run anew" in caplog.text
        caplog.clear()


def test_fewer_sequences_than_were_drawn_from_are_refused(
    begun: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "sequences" / "shard-00001.safetensors").unlink()
    assert main(begun) == 1
    assert "holds 4 sequences, and the run has drawn from 8" in caplog.text


@pytest.mark.parametrize("suffix", ["safetensors", "json"])
def test_a_shard_that_is_cut_or_lacks_its_kinds_is_named(
    begun: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture, suffix: str
) -> None:
    file = tmp_path / "sequences" / f"shard-00001.{suffix}"
    file.write_bytes(file.read_bytes()[:10])
    assert main(begun) == 1
    assert f"cannot read the shard {tmp_path}/sequences/shard-00001.safetensors" in caplog.text
    file.unlink()
    assert main(begun) == 1

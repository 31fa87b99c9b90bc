"""A run from the command line to a drafter's folder, over a checkpoint of a few kilobytes."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from dflash.drafters.checkpoint import open_drafter_checkpoint
from dflash.errors import ConfigError
from dflash.models.checkpoint import open_checkpoint
from dflash.train.__main__ import main
from dflash.train.device import training_device
from dflash.train.run_state import load_state, save_state
from dflash.train.stored import StoredSequences
from tests.rigs.elsewhere import ELSEWHERE, Elsewhere
from tests.rigs.fit_run import TAPS, VOCABULARY, arguments, sequence, stored, write_target


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_target(tmp_path / "target")


def test_a_run_ends_with_a_drafter_that_serving_accepts(tmp_path: Path, target: Path) -> None:
    assert main(arguments(tmp_path, target, steps=20)) == 0
    drafter = open_drafter_checkpoint(tmp_path / "drafter")
    assert drafter.config.version == 2
    assert drafter.config.target_layer_ids == TAPS
    assert drafter.config.target_fingerprint == load_state(tmp_path / "run").target_fingerprint
    ids = drafter.target_ids()
    assert len(ids) == 300
    # The ids that were emitted are among them.
    assert set(range(5, 40)) <= set(ids.tolist())

    step, measured = curve_of(tmp_path)
    assert step["step"] == measured["step"] == 20
    assert measured["by_kind"].keys() == {"chat", "code"}
    kinds = measured["by_kind"].values()
    assert 1.0 <= min(kinds) <= measured["held_out"] <= max(kinds) <= 8.0


def test_a_run_ends_with_an_mtp_head_that_serving_accepts(tmp_path: Path, target: Path) -> None:
    fit = [*arguments(tmp_path, target, steps=20), "--drafter", "mtp", "--draft-length", "2"]
    index = fit.index("--mask-token-id")
    assert main(fit[:index] + fit[index + 2 :]) == 0

    head = open_drafter_checkpoint(tmp_path / "drafter")
    assert (head.config.kind, head.config.max_draft_length) == ("MTP", 2)
    assert head.config.target_fingerprint == load_state(tmp_path / "run").target_fingerprint
    assert set(range(5, 40)) <= set(head.target_ids().tolist())
    step, measured = curve_of(tmp_path)
    assert step["step"] == measured["step"] == 20
    kinds = measured["by_kind"].values()
    assert 1.0 <= min(kinds) <= measured["held_out"] <= max(kinds) <= 3.0
    assert len(measured["by_slot"]) == 2


@pytest.mark.parametrize(("kind", "other"), [("mtp", "dflash"), ("dflash", "mtp")])
def test_a_run_of_another_kind_does_not_go_on(
    tmp_path: Path, target: Path, caplog: pytest.LogCaptureFixture, kind: str, other: str
) -> None:
    fit = arguments(tmp_path, target, steps=1)
    assert main([*fit, "--drafter", kind]) == 0
    assert main([*fit, "--drafter", other]) == 1
    assert f"holds a drafter of kind {kind}, and --drafter is {other}" in caplog.text


def test_a_block_drafter_needs_a_mask(
    tmp_path: Path, target: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fit = arguments(tmp_path, target, steps=1)
    index = fit.index("--mask-token-id")
    assert main(fit[:index] + fit[index + 2 :]) == 1
    assert "--mask-token-id is missing" in caplog.text


def test_an_mtp_head_is_not_trained_on_labels_only(
    tmp_path: Path, target: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fit = [*arguments(tmp_path, target, steps=1), "--drafter", "mtp", "--labels-only"]
    assert main(fit) == 1
    assert "leave out --labels-only" in caplog.text


def test_a_run_goes_on_from_its_state_and_exports_again(tmp_path: Path, target: Path) -> None:
    assert main(arguments(tmp_path, target, steps=2)) == 0
    assert main(arguments(tmp_path, target, steps=5)) == 0
    assert load_state(tmp_path / "run").step == 5
    again = ["export", "--run", str(tmp_path / "run"), "--out", str(tmp_path / "again")]
    assert main(again) == 0
    weights = [
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("drafter", "again")
    ]
    assert weights[0] == weights[1]


@pytest.fixture
def fit_elsewhere(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], Elsewhere]:
    def run(fit: list[str]) -> Elsewhere:
        with monkeypatch.context() as patch, Elsewhere() as elsewhere:
            patch.setattr("dflash.train.__main__.training_device", lambda name: ELSEWHERE)
            # The optimiser knows by name which devices have a fused step; this one has the CPU's.
            adam = import_module("torch.optim.adam")
            patch.setattr(adam, "_device_dtype_check_for_fused", lambda parameter: None)
            assert main(fit) == 0
        return elsewhere

    return run


@pytest.fixture
def plain_attention() -> Iterator[None]:
    """The library's attention without the kernels that only one device has."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def curve_of(folder: Path) -> list[dict]:
    lines = (folder / "run" / "curve.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def results(folder: Path) -> tuple[list[dict], bytes]:
    curve = [{**entry, "elapsed_s": None} for entry in curve_of(folder)]
    return curve, (folder / "drafter" / "model.safetensors").read_bytes()


@pytest.mark.usefixtures("plain_attention")
@pytest.mark.parametrize("more", [[], ["--decay", "4"], ["--labels-only"], ["--drafter", "mtp"]])
def test_a_run_keeps_to_its_device_and_comes_to_the_same(
    tmp_path: Path, target: Path, fit_elsewhere, more: list[str]
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    assert main([*arguments(here, target, steps=20), *more, "--device", "cpu"]) == 0
    elsewhere = fit_elsewhere([*arguments(there, target, steps=20), *more])
    # Every step ran there, where a tensor of the CPU is refused.
    assert "aten._fused_adamw_.default" in elsewhere.computed
    assert results(there) == results(here)


@pytest.mark.usefixtures("plain_attention")
# The library takes the label for a device that holds no numbers; this one does.
@pytest.mark.filterwarnings("ignore:.*which is a no-op:UserWarning")
def test_a_run_goes_on_from_its_state_on_another_device(
    tmp_path: Path, target: Path, fit_elsewhere
) -> None:
    def fit_here(fit: list[str]) -> None:
        assert main(fit) == 0

    ways = ((fit_here, fit_here), (fit_here, fit_elsewhere), (fit_elsewhere, fit_here))
    found = []
    for way, (first, second) in enumerate(ways):
        folder = tmp_path / str(way)
        first(arguments(folder, target, steps=3))
        second(arguments(folder, target, steps=6))
        found.append(results(folder))
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.mark.parametrize(
    ("name", "devices", "expected"),
    [("auto", 0, "cpu"), ("auto", 2, "cuda"), ("cpu", 2, "cpu"), ("cuda:1", 2, "cuda:1")],
)
def test_a_device_is_named_or_found(
    monkeypatch: pytest.MonkeyPatch, name: str, devices: int, expected: str
) -> None:
    with_devices(monkeypatch, devices)
    assert str(training_device(name)) == expected


@pytest.mark.parametrize(
    ("name", "devices", "usable"),
    [("cuda", 0, "cpu"), ("cuda:2", 2, "cpu, cuda, cuda:0, cuda:1"), ("meta", 0, "cpu")],
)
def test_a_device_that_is_not_here_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, devices: int, usable: str
) -> None:
    with_devices(monkeypatch, devices)
    with pytest.raises(ConfigError, match=f"--device is {name}, .*; use auto or one of: {usable}$"):
        training_device(name)


def test_a_run_on_a_device_that_is_not_here_starts_nothing(
    tmp_path: Path, target: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert main([*arguments(tmp_path, target, steps=1), "--device", "abacus"]) == 1
    assert "--device is abacus" in caplog.text
    assert not (tmp_path / "run").exists()


def with_devices(monkeypatch: pytest.MonkeyPatch, devices: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: devices > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)


@pytest.mark.parametrize("option", ["--sequences", "--held-out"])
def test_sequences_of_another_checkpoint_are_refused(
    tmp_path: Path, target: Path, caplog: pytest.LogCaptureFixture, option: str
) -> None:
    stored(tmp_path / "sequences", fingerprint="another's")
    fit = arguments(tmp_path / "elsewhere", target, steps=1)
    fit[fit.index(option) + 1] = str(tmp_path / "sequences")
    assert main(fit) == 1
    assert f"{option} {tmp_path}/sequences was made by another checkpoint" in caplog.text
    assert not (tmp_path / "elsewhere" / "run").exists()


@pytest.mark.parametrize("option", ["--sequences", "--held-out"])
def test_a_folder_that_holds_nothing_to_learn_is_refused(
    tmp_path: Path, target: Path, caplog: pytest.LogCaptureFixture, option: str
) -> None:
    fit = arguments(tmp_path, target, steps=1)
    stored(tmp_path / "empty", open_checkpoint(str(target), tmp_path).fingerprint, shards=0)
    fit[fit.index(option) + 1] = str(tmp_path / "empty")
    assert main(fit) == 1
    assert f"{option} {tmp_path}/empty holds no answer" in caplog.text
    assert not (tmp_path / "run").exists()


def test_a_mask_that_the_target_does_not_have_is_refused(
    tmp_path: Path, target: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fit = arguments(tmp_path, target, steps=1)
    fit[fit.index("--mask-token-id") + 1] = str(VOCABULARY)
    assert main(fit) == 1
    assert "--mask-token-id is 320, this target's ids are 0 to 319" in caplog.text


def test_a_run_of_another_target_does_not_go_on(
    tmp_path: Path, target: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fit = arguments(tmp_path, target, steps=1)
    assert main(fit) == 0
    state = load_state(tmp_path / "run")
    save_state(tmp_path / "run", replace(state, target_fingerprint="another's"))
    assert main(fit) == 1
    assert "holds a drafter of another target" in caplog.text


def test_an_export_of_nothing_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run, out = str(tmp_path / "run"), str(tmp_path / "drafter")
    assert main(["export", "--run", run, "--out", out]) == 1
    assert "holds no state of a run" in caplog.text


def test_stored_sequences_are_those_written_and_more_as_they_come(tmp_path: Path) -> None:
    folder = stored(tmp_path, fingerprint="", shards=1)
    # An answer of one token has an anchor and nothing to predict.
    folder.write(1, [sequence(9, length=6), replace(sequence(8), temperature=1.0)])
    sequences = StoredSequences(tmp_path)
    assert len(sequences) == 5
    assert sequences[4].temperature == 1.0
    for index, seed in enumerate((0, 1, 2, 3, 8)):
        assert torch.equal(sequences[index].token_ids, sequence(seed).token_ids)
        assert torch.equal(sequences[index].features, sequence(seed).features)
        assert sequences[index].kind == sequence(seed).kind
    folder.write(2, [])
    folder.write(3, [sequence(10)])
    assert len(sequences) == 5
    sequences.refresh()
    assert len(sequences) == 6
    assert torch.equal(sequences[5].token_ids, sequence(10).token_ids)
    counts = sequences.response_counts(64)
    assert counts.sum() == 6 * 15

"""`dflashctl check`: all that a start would refuse, and what will be held, from files alone."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.rigs.tiny_drafter import TinyDrafter, write_tiny
from deployments.check import main
from dflash.models.config import model_config_from_json
from tests.rigs.tiny_checkpoint import TINY_CONFIG, write_tiny_checkpoint

ROOT = Path(__file__).parents[2]
TARGET = model_config_from_json(TINY_CONFIG)


@pytest.fixture
def engine(tmp_path: Path) -> dict[str, Any]:
    """Settings of a tiny target with a drafter made for it."""
    write_tiny_checkpoint(tmp_path / "target")
    write_tiny(tmp_path / "drafter", TinyDrafter(), TARGET)
    return {
        "model": str(tmp_path / "target"),
        "kv_cache": {"memory_gib": 0.001},
        "speculation": {"drafter": str(tmp_path / "drafter")},
    }


def written(folder: Path, engine: dict[str, Any], **application: Any) -> Path:
    path = folder / "serve.yaml"
    entry = {"name": "a", "import_path": "deployments.app:build", "args": {"engine": engine}}
    path.write_text(yaml.safe_dump({"applications": [entry | application]}), encoding="utf-8")
    return path


def line_of(path: Path, key: str) -> int:
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(i for i, line in enumerate(lines, start=1) if key in line)


def sizes_in(table: str) -> dict[str, list[float]]:
    rows = re.findall(r"^  ([a-zA-Z ]+?)  +([\d,.]+ MiB|-) +([\d,.]+ MiB)$", table, re.MULTILINE)
    return {
        name: [0.0 if cell == "-" else float(cell[:-4].replace(",", "")) for cell in cells]
        for name, *cells in rows
    }


def test_parts_sum_to_the_device_with_a_drafter_and_without(
    tmp_path: Path, engine: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    assert main([str(written(tmp_path, engine)), "--device-memory", "2"]) == 0

    printed = capsys.readouterr()
    sizes = sizes_in(printed.out)
    total = sizes.pop("total")
    assert total == [2048.0, 2048.0]
    for column in (0, 1):
        assert sum(each[column] for each in sizes.values()) == pytest.approx(2048.0, abs=0.5)
    assert sizes["drafter weights"][0] == 0 < sizes["drafter weights"][1]
    assert "a device of 2 GiB" in printed.out
    assert "drafter: drafter, DFlash" in printed.out
    assert "no problem found" in printed.err


def test_what_does_not_fit_is_refused_with_the_sum_at_its_line(
    tmp_path: Path, engine: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    engine["kv_cache"]["memory_gib"] = 4
    path = written(tmp_path, engine)

    assert main([str(path), "--device-memory", "2"]) == 1

    said = capsys.readouterr().err
    assert f"{path}:{line_of(path, 'memory_gib')}  applications[0].args.engine.kv_cache" in said
    assert re.search(r"weights [\d.]+ MiB \+ KV pages 4,096\.0 MiB \+ .* = [\d,.]+ MiB", said)
    assert said.endswith("1 problem. Nothing was started.\n")


def test_a_card_is_known_by_name_and_by_the_file(
    tmp_path: Path, engine: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    path = written(tmp_path, engine)
    assert main([str(path), "--card", "h200"]) == 0
    assert "143,771.0 MiB" in capsys.readouterr().out

    actor = {"ray_actor_options": {"accelerator_type": "L4", "num_gpus": 1}}
    path = written(tmp_path, engine, deployments=[{"name": "Engine", **actor}])
    assert main([str(path)]) == 0
    assert "of one L4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--card", "H20"], "did you mean H200?"),
        (["--device-memory", "-1"], "over 0"),
        (["--device-memory", "1", "--card", "H200"], "not allowed with"),
        (["other.yaml"], "unrecognized arguments"),
    ],
)
def test_a_wrong_command_is_told_apart_from_a_wrong_file(
    tmp_path: Path,
    engine: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
):
    assert main([str(written(tmp_path, engine)), *arguments]) == 2
    assert words in capsys.readouterr().err


def test_every_drafter_that_cannot_draft_here_is_named_at_once_with_its_reason(
    tmp_path: Path, engine: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    wide = model_config_from_json(TINY_CONFIG | {"hidden_size": 128})
    many = model_config_from_json(TINY_CONFIG | {"vocab_size": 64})
    deep = model_config_from_json(TINY_CONFIG | {"num_hidden_layers": 9})
    folders = [
        write_tiny(tmp_path / name, TinyDrafter(), target)
        for name, target in {"wide": wide, "many": many, "deep": deep}.items()
    ]
    engine["speculation"]["drafter"] = [str(folder) for folder in folders]
    path = written(tmp_path, engine)

    assert main([str(path), "--device-memory", "2"]) == 1

    said = capsys.readouterr().err
    for folder, reason in zip(
        folders, ("hidden_size 128", "vocab_size 64", "target_layer"), strict=True
    ):
        assert f"{path}:{line_of(path, str(folder))}  " in said
        assert reason in said
    assert "3 problems" in said


def test_a_drafter_that_numbers_tokens_differently_is_refused(
    tmp_path: Path, engine: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    def tokenizer(folder: str, vocab: dict[str, int]) -> None:
        content = {"model": {"vocab": vocab}, "added_tokens": [{"id": 2, "content": "<end>"}]}
        (tmp_path / folder / "tokenizer.json").write_text(json.dumps(content))

    tokenizer("target", {"a": 0, "b": 1})
    tokenizer("drafter", {"a": 0, "b": 1})
    path = written(tmp_path, engine)
    assert main([str(path), "--device-memory", "2"]) == 0

    tokenizer("drafter", {"a": 1, "b": 0})
    assert main([str(path), "--device-memory", "2"]) == 1
    assert "has 'a' as id 1, in this target's it is id 0" in capsys.readouterr().err


def test_a_length_over_the_drafters_reach_is_said_and_is_no_problem(
    tmp_path: Path, engine: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    engine["speculation"]["draft_length"] = 15
    assert main([str(written(tmp_path, engine)), "--device-memory", "2"]) == 0
    assert "draft_length is 15, over the reach of drafter: 7 will be" in capsys.readouterr().out


@pytest.mark.parametrize("setting", ["model", "drafter"])
def test_a_hub_id_that_is_not_here_is_said_to_be_unchecked(
    tmp_path: Path,
    engine: dict[str, Any],
    setting: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    (engine if setting == "model" else engine["speculation"])[setting] = "nobody/nothing"

    assert main([str(written(tmp_path, engine)), "--device-memory", "2"]) == 0

    printed = capsys.readouterr().out
    assert "not checked: engine." in printed
    assert "'nobody/nothing'" in printed
    assert "not been downloaded to this machine" in printed


def test_ray_serve_llms_arguments_are_looked_into_and_named_as_given(
    tmp_path: Path, engine: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    loading = {"model_id": "tiny", "model_source": engine["model"]}
    kwargs = {"max_model_len": 4096, "gpu_memory_utilization": 0.5}
    args = {"llm_configs": [{"model_loading_config": loading, "engine_kwargs": kwargs}]}
    path = written(tmp_path, {}, args=args)

    assert main([str(path), "--device-memory", "2"]) == 1

    said = capsys.readouterr().err
    at = line_of(path, "max_model_len")
    assert f"{path}:{at}  applications[0].args.llm_configs[0].engine_kwargs.max_model_len" in said
    assert "engine_kwargs.max_model_len is 4096, but the model was trained for 128" in said


def test_an_application_of_somebody_else_is_not_passed_over_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main([str(written(tmp_path, {}, import_path="other:app"))]) == 0
    assert "other:app is not this server; not looked into" in capsys.readouterr().out


def test_the_shipped_file_is_checked_without_torch_and_without_ray_started():
    probe = (
        "import sys, ray; from deployments.cli import main;"
        "code = main(['check', 'serve_config.yaml']);"
        "sys.exit(9 if 'torch' in sys.modules or ray.is_initialized() else code)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", probe],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "no problem found" in ran.stderr

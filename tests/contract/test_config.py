"""The configuration is read strictly: a slip is named with its line and the nearest valid key."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments import origin
from deployments.config import ServeArgs, serve_args_from
from deployments.config_file import problems_of, read_config_file
from deployments.origin import ForeignEngineError, require_own_engine
from dflash.config import Dtype, EngineConfig, EngineLimits, KVCacheConfig
from dflash.errors import ConfigError

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "serve_config.yaml"


def shipped() -> dict[str, Any]:
    return copy.deepcopy(yaml.safe_load(SHIPPED.read_text(encoding="utf-8")))


def at(config: dict[str, Any], path: str) -> Any:
    """Return the part of the shipped configuration that a dotted path leads to."""
    for part in path.split("."):
        config = config[int(part) if part.isdecimal() else part]
    return config


def test_the_shipped_configuration_has_no_problem():
    assert read_config_file(SHIPPED).problems == ()


def test_the_shipped_configuration_scales_from_one_to_two_on_fractional_cpus():
    engine = at(shipped(), "applications.0.deployments.1")
    assert engine["autoscaling_config"]["min_replicas"] == 1
    assert engine["autoscaling_config"]["max_replicas"] == 2
    assert 0 < engine["ray_actor_options"]["num_cpus"] < 1
    limits = engine["user_config"]["limits"]
    room = limits["max_num_seqs"] + limits["max_num_waiting"]
    assert engine["max_ongoing_requests"] >= room


def test_args_become_the_engines_settings():
    args = serve_args_from(
        {
            "model_name": "mine",
            "engine": {
                "model": "/models/x",
                "dtype": "float32",
                "kv_cache": {"memory_gib": 2, "prefix_caching": False},
                "limits": {"max_num_seqs": 8},
            },
        }
    )
    assert args.served_name == "mine"
    assert args.engine == EngineConfig(
        model="/models/x",
        dtype=Dtype.FLOAT32,
        kv_cache=KVCacheConfig(memory_gib=2.0, prefix_caching=False),
        limits=EngineLimits(max_num_seqs=8),
    )
    assert serve_args_from({}) == ServeArgs()
    assert serve_args_from({"engine": {"model": "/models/x"}}).served_name == "x"


@pytest.mark.parametrize(
    ("path", "key", "nearest"),
    [
        ("", "http_option", "http_options"),
        ("http_options", "prot", "port"),
        ("applications.0", "import_pat", "import_path"),
        ("applications.0.args", "model_nam", "model_name"),
        ("applications.0.args.engine", "dtyp", "dtype"),
        ("applications.0.args.engine.kv_cache", "page_sze", "page_size"),
        ("applications.0.args.engine.speculation", "draft_len", "draft_length"),
        ("applications.0.deployments.0", "max_ongoing_request", "max_ongoing_requests"),
        ("applications.0.deployments.0.ray_actor_options", "num_cpu", "num_cpus"),
        ("applications.0.deployments.1.autoscaling_config", "min_replica", "min_replicas"),
        ("applications.0.deployments.1.user_config", "limit", "limits"),
        ("applications.0.deployments.1.user_config.limits", "max_num_seq", "max_num_seqs"),
    ],
)
def test_an_unknown_key_anywhere_is_named_with_the_nearest(path: str, key: str, nearest: str):
    config = shipped()
    place = at(config, path) if path else config
    place[key] = place.pop(nearest, 1)

    problem = next(each for each in problems_of(config) if each.path[-1] == key)

    assert problem.message == f"No such key. Did you mean {nearest}?"


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        ("applications.0.args", "keys_file", "keys.yaml"),
        ("applications.0.args", "keys_file", 5),
        ("applications.0.args", "requests", {"max_body_bytes": 0}),
        ("applications.0.args", "requests", {"max_timeout_s": 0}),
        ("applications.0.args", "requests", {"default_timeout_s": 4000}),
        ("applications.0.args", "requests", {"max_body_byte": 5000}),
        ("applications.0.args.engine", "dtype", "int4"),
        ("applications.0.args.engine", "exactness", "roughly"),
        ("applications.0.args.engine", "num_threads", 0),
        ("applications.0.args.engine", "num_threads", True),
        ("applications.0.args.engine", "max_model_len", "2048"),
        ("applications.0.args.engine", "kv_cache", [1]),
        ("applications.0.args.engine.kv_cache", "memory_gib", -1),
        ("applications.0.args.engine.kv_cache", "memory_gib", float("nan")),
        ("applications.0.args.engine.kv_cache", "prefix_caching", "yes"),
        ("applications.0.args.engine.speculation", "draft_length", 16),
        ("applications.0.args.engine.speculation", "drafter", 5),
        ("applications.0.args.engine.speculation", "drafter", ["auto", 5]),
        ("applications.0.args.engine.speculation", "drafter", []),
        ("applications.0.deployments.1.user_config.limits", "max_num_seqs", 0),
        ("applications.0.deployments.1.autoscaling_config", "upscale_delay_s", 1),
        ("applications.0.deployments.1.autoscaling_config", "downscale_delay_s", 9),
        ("applications.0.deployments.1.autoscaling_config", "target_ongoing_requests", 384),
        ("applications.0.deployments.0", "max_ongoing_requests", "many"),
        ("applications.0.deployments.0", "name", "Ingres"),
        ("applications.0.deployments.0", "user_config", {"limits": {}}),
        ("http_options", "port", "http"),
        ("http_options", "port", 80000),
    ],
)
def test_a_value_that_cannot_work_is_named_with_its_key(path: str, key: str, value: object):
    config = shipped()
    at(config, path)[key] = value

    problems = problems_of(config)

    assert any(key in each.path for each in problems), problems


def test_a_keys_file_that_is_here_is_read_along_and_an_absent_one_is_no_problem(tmp_path: Path):
    config = shipped()
    at(config, "applications.0.args")["keys_file"] = str(tmp_path / "keys.yaml")
    assert problems_of(config) == []
    (tmp_path / "keys.yaml").write_text("keys: [{name: ana}]")
    (problem,) = problems_of(config)
    assert problem.path[-1] == "keys_file"
    assert "file.keys[0].hash" in problem.message


def test_a_list_of_drafters_is_a_ladder_by_hand():
    args = serve_args_from({"engine": {"speculation": {"drafter": ["heavy", "org/light"]}}})
    assert args.engine.speculation.drafter == ("heavy", "org/light")


def test_a_report_has_file_line_key_and_fix_for_all_problems_at_once(tmp_path: Path):
    text = SHIPPED.read_text(encoding="utf-8")
    text = text.replace("dtype: bfloat16", "dtyp: bfloat16").replace("port: 8000", "port: none")
    path = tmp_path / "wrong.yaml"
    path.write_text(text, encoding="utf-8")
    lines = text.splitlines()

    ran = subprocess.run(
        [sys.executable, "-m", "deployments.config", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ran.returncode == 1
    for key, fix in (("dtyp:", "Did you mean dtype?"), ("port:", "integer")):
        number = next(i for i, line in enumerate(lines, start=1) if key in line)
        report = ran.stderr[ran.stderr.index(f"{path}:{number}  ") :]
        assert fix in report.splitlines()[1]
    assert ran.stderr.endswith("2 problems. Nothing was started.\n")


@pytest.mark.parametrize("content", [b"", b"[1]", b"a: [", b"\xff\xfe\x00", b"applications: 5"])
def test_a_file_that_is_no_configuration_is_a_problem_not_a_crash(tmp_path: Path, content: bytes):
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    assert read_config_file(path).problems
    assert read_config_file(tmp_path / "absent.yaml").problems


def test_building_with_wrong_args_fails_with_every_problem():
    from deployments.app import build

    with pytest.raises(ConfigError) as refused:
        build({"engine": {"dtyp": "x", "kv_cache": {"page_size": 8}}})
    assert "dtype" in str(refused.value)
    assert "page_size must be 16" in str(refused.value)


def test_a_stranger_named_dflash_stops_the_start_with_both_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    stranger = tmp_path / "dflash" / "__init__.py"
    stranger.parent.mkdir()
    stranger.write_text("")
    probe = (
        "import sys; sys.path.insert(0, sys.argv[1]); sys.path.insert(1, sys.argv[2]);"
        "import deployments"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", probe, str(tmp_path), str(ROOT)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode != 0
    assert "ForeignEngineError" in ran.stderr
    assert str(stranger) in ran.stderr
    assert "pip uninstall dflash" in ran.stderr

    require_own_engine()
    monkeypatch.setattr(origin, "find_spec", lambda _name: None)
    with pytest.raises(ForeignEngineError, match="finds nothing"):
        require_own_engine()


@pytest.mark.parametrize(
    ("claimants", "stranger"),
    [
        (["dflash-serve"], None),
        (["dflash-serve", "dflash-serve"], None),
        ([], None),
        (["dflash-serve", "dflash"], "dflash"),
        (["other-flash"], "other-flash"),
    ],
)
def test_another_distribution_over_ours_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, claimants: list[str], stranger: str | None
):
    monkeypatch.setattr(origin, "packages_distributions", lambda: {"dflash": claimants})
    if stranger is None:
        require_own_engine()
        return
    with pytest.raises(ForeignEngineError, match=f"pip uninstall {stranger}'"):
        require_own_engine()

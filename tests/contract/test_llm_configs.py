"""Who moves from Ray Serve LLM changes `import_path`: the same arguments act, or are refused."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.llm._internal.serve.core.configs.llm_config import LLMConfig

from deployments.app import build
from deployments.config_file import read_config_file
from deployments.llm_configs import Moved, moved_from
from dflash.config import Dtype, EngineConfig, EngineLimits, KVCacheConfig, SpeculationConfig
from dflash.errors import ConfigError

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
RAYS, OURS = EXAMPLES / "ray-serve-llm.yaml", EXAMPLES / "dflash-serve.yaml"


def args_of(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))["applications"][0]["args"]


def moved_with(change: dict[str, Any]) -> Moved:
    """Return the example moved, with other values at dotted paths in its one model."""
    args = copy.deepcopy(args_of(OURS))
    for dotted, value in change.items():
        *inner, last = dotted.split(".")
        place = args["llm_configs"][0]
        for key in inner:
            place = place.setdefault(key, {})
        place[last] = value
    return moved_from(args)


def test_the_two_examples_differ_in_the_import_path_alone():
    pairs = zip(*(path.read_text(encoding="utf-8").splitlines() for path in (RAYS, OURS)), strict=1)
    differing = [pair for pair in pairs if pair[0] != pair[1]]
    assert [line.strip() for line in differing[0]] == [
        "import_path: ray.serve.llm:build_openai_app",
        "import_path: deployments.app:build",
    ]
    assert len(differing) == 1


def test_both_sides_read_the_example():
    (config,) = args_of(RAYS)["llm_configs"]
    rays = LLMConfig.model_validate(config)
    moved = moved_from(args_of(OURS))

    assert read_config_file(OURS).problems == ()
    assert moved.settings().served_name == rays.model_id == "smollm2"
    assert moved.settings().engine == EngineConfig(
        model=rays.model_loading_config.model_source,
        dtype=Dtype.BFLOAT16,
        max_model_len=rays.max_request_context_length,
        kv_cache=KVCacheConfig(memory_share=0.25, prefix_caching=True),
        limits=EngineLimits(max_num_seqs=32, max_num_batched_tokens=1024),
        speculation=SpeculationConfig("my-organisation/smollm2-135m-dflash", 7),
    )


def test_deployment_options_act():
    application = build(args_of(OURS))
    ingress = application._bound_deployment
    (engine,) = (each._bound_deployment for each in ingress.init_args[:1])

    assert ingress.max_ongoing_requests == 2000
    assert (engine.name, engine.max_ongoing_requests) == ("Engine", 256)
    scaling = engine._deployment_config.autoscaling_config
    assert (scaling.max_replicas, scaling.target_ongoing_requests) == (4, 24)


def test_autoscaling_acts_without_a_target_of_its_own():
    scaling = {"min_replicas": 1, "max_replicas": 2}
    moved = moved_with({"deployment_config": {"autoscaling_config": scaling}})
    assert moved.problems == ()
    assert moved.options.engine["autoscaling_config"]["target_ongoing_requests"] == 24
    assert moved.options.engine["max_ongoing_requests"] >= 32 + 256


def test_keys_and_bounds_of_requests_are_set_as_in_our_own_form():
    args = args_of(OURS) | {"keys_file": "/etc/keys.yaml", "requests": {"max_body_bytes": 2048}}
    ours = moved_from(args).settings()
    assert (ours.keys_file, ours.requests.max_body_bytes) == ("/etc/keys.yaml", 2048)
    (problem,) = moved_from(args | {"keys_file": "keys.yaml"}).problems
    assert problem.path == ("keys_file",)


def test_a_card_is_one_replicas():
    actor = moved_with({"accelerator_type": "H200"}).options.engine["ray_actor_options"]
    assert (actor["num_gpus"], actor["accelerator_type"]) == (1, "H200")


def test_the_environment_and_the_number_of_ingresses_act():
    environment = {"env_vars": {"HF_TOKEN": "t"}}
    moved = moved_with(
        {"runtime_env": environment, "experimental_configs": {"num_ingress_replicas": 3}}
    )
    assert moved.options.engine["ray_actor_options"]["runtime_env"] == environment
    assert moved.options.ingress["num_replicas"] == 3


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ({"engine_kwargs.dtype": "float"}, ("dtype", Dtype.FLOAT32)),
        ({"engine_kwargs.dtype": "auto"}, ("dtype", Dtype.BFLOAT16)),
        ({"model_loading_config": {"model_id": "org/x"}}, ("model", "org/x")),
        (
            {
                "engine_kwargs.gpu_memory_utilization": None,
                "engine_kwargs.kv_cache_memory_bytes": 1 << 31,
            },
            ("kv_cache", KVCacheConfig(memory_gib=2.0)),
        ),
        (
            {"engine_kwargs.speculative_config": {"method": "mtp", "num_speculative_tokens": 2}},
            ("speculation", SpeculationConfig("HuggingFaceTB/SmolLM2-135M-Instruct", 2)),
        ),
        ({"engine_kwargs.speculative_config": None}, ("speculation", SpeculationConfig())),
    ],
)
def test_values_mean_what_they_mean_there(given: dict[str, Any], ours: tuple[str, object]):
    moved = moved_with(given)
    assert moved.problems == ()
    assert getattr(moved.settings().engine, ours[0]) == ours[1]


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("llm_engine", "vLLM", "leave it out"),
        ("lora_config", {"dynamic_lora_loading_path": "s3://x"}, "leave it out"),
        ("placement_group_config", {"bundles": [{"GPU": 1}]}, "ray_actor_options"),
        ("accelerator_config", {"kind": "tpu"}, "accelerator_type"),
        ("server_cls", "mine:Server", "leave it out"),
        ("log_engine_metrics", False, "leave it out"),
        ("model_loading_config.tokenizer_source", "org/x", "leave it out"),
        ("engine_kwargs.tensor_parallel_size", 2, "1, or leave it out"),
        ("engine_kwargs.trust_remote_code", True, "leave it out"),
        ("engine_kwargs.quantization", "fp8", "leave it out"),
        ("engine_kwargs.max_num_seq", 8, "Did you mean max_num_seqs?"),
        ("engine_kwargs.dtype", "half", "'bfloat16'"),
        ("engine_kwargs.max_model_len", "2048", "integer"),
        ("engine_kwargs.max_model_len", 1, "engine_kwargs.max_model_len must be 2 or more"),
        ("engine_kwargs.block_size", 32, "engine_kwargs.block_size must be 16"),
        ("engine_kwargs.gpu_memory_utilization", 1.5, "engine_kwargs.gpu_memory_utilization must"),
        ("engine_kwargs.speculative_config.method", "eagle", "'dflash' or 'mtp'"),
        ("engine_kwargs.speculative_config.model", None, "Name the drafter's folder"),
        ("experimental_configs.stream_batching_interval_ms", 50, "leave it out"),
        ("deployment_config.name", "mine", "leave it out"),
        ("deployment_config.max_ongoing_request", 5, "Did you mean max_ongoing_requests?"),
        ("deployment_config.autoscaling_config.upscale_delay_s", 1, "flap"),
        ("deployment_config.user_config", {"limit": {}}, "Did you mean limits?"),
    ],
)
def test_what_is_not_read_is_refused_by_name_with_the_fix(key: str, value: object, word: str):
    moved = moved_with({key: value})

    (problem,) = moved.problems
    given = ".".join(str(part) for part in problem.path[2:])
    assert given == key or given.startswith(f"{key}.")
    assert word in problem.message
    with pytest.raises(ConfigError):
        moved.settings()


def test_values_that_ask_for_nothing_are_accepted():
    neutral = {
        "engine_kwargs.tensor_parallel_size": 1,
        "engine_kwargs.enforce_eager": True,
        "engine_kwargs.quantization": None,
        "log_engine_metrics": True,
        "lora_config": None,
    }
    assert moved_with(neutral).problems == ()


def test_all_problems_are_named_at_once_and_building_fails_with_them():
    args = args_of(OURS)
    args["llm_configs"][0] |= {"llm_engine": "vLLM", "accelerator_typ": "H200"}
    args["ingress_deployment_config"]["user_config"] = {}
    with pytest.raises(ConfigError) as refused:
        build(args)
    for words in ("llm_engine", "Did you mean accelerator_type?", "Only deployment_config"):
        assert words in str(refused.value)


@pytest.mark.parametrize("configs", [[], None, {"a": 1}, ["models/a.yaml"], [{}, {}]])
def test_one_model_written_out_is_what_an_application_has(configs: object):
    problems = moved_from({"llm_configs": configs}).problems
    assert problems
    if configs == [{}, {}]:
        assert "route_prefix" in problems[-1].message or "route_prefix" in problems[0].message

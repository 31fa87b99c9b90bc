"""The arguments of Ray Serve's own LLM application (`llm_configs: [...]`), as ours.

Who moves from `ray.serve.llm:build_openai_app` changes `import_path` and nothing else. Every key is
read or refused by name: one that is dropped would be a setting that stops acting in silence.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ray.serve.schema import DeploymentSchema

from deployments.config import ServeArgs, UserConfig
from deployments.llm_schema import REFUSED, LlmArgs
from deployments.serve_schema import problems_by_serve, scaling_problems
from deployments.strict import KeyPath, Problem, dotted, joined, problems_in, value_from
from dflash.config import EngineLimits
from dflash.errors import ConfigError
from dflash.memory import GIB

LLM_CONFIGS = "llm_configs"
_MODEL: KeyPath = (LLM_CONFIGS, 0)
_ENGINE_AT: KeyPath = (*_MODEL, "deployment_config")
_INGRESS_AT: KeyPath = ("ingress_deployment_config",)
_KWARGS: KeyPath = (*_MODEL, "engine_kwargs")
_SPECULATIVE: KeyPath = (*_KWARGS, "speculative_config")
# Their key, and ours for the same thing.
_SAME: Mapping[KeyPath, KeyPath] = {
    ("keys_file",): ("keys_file",),
    ("requests",): ("requests",),
    (*_MODEL, "model_loading_config", "model_id"): ("model_name",),
    (*_KWARGS, "max_model_len"): ("engine", "max_model_len"),
    (*_KWARGS, "max_num_seqs"): ("engine", "limits", "max_num_seqs"),
    (*_KWARGS, "max_num_batched_tokens"): ("engine", "limits", "max_num_batched_tokens"),
    (*_KWARGS, "gpu_memory_utilization"): ("engine", "kv_cache", "memory_share"),
    (*_KWARGS, "block_size"): ("engine", "kv_cache", "page_size"),
    (*_KWARGS, "enable_prefix_caching"): ("engine", "kv_cache", "prefix_caching"),
    (*_SPECULATIVE, "num_speculative_tokens"): ("engine", "speculation", "draft_length"),
}
_DTYPES = {"float": "float32"}
# What serve_config.yaml gives its deployments; Serve's own defaults are for short calls.
_ENGINE_OPTIONS: Mapping[str, Any] = {
    "max_queued_requests": 128,
    "health_check_period_s": 5,
    "health_check_timeout_s": 10,
    "graceful_shutdown_timeout_s": 120,
}
_ENGINE_ACTOR: Mapping[str, Any] = {
    "num_cpus": 0.5,
    "runtime_env": {"env_vars": {"GOMP_SPINCOUNT": "1000"}},
}
_INGRESS_OPTIONS: Mapping[str, Any] = {"max_ongoing_requests": 1000}
_INGRESS_ACTOR: Mapping[str, Any] = {"num_cpus": 0.2}


@dataclass(frozen=True, slots=True)
class DeploymentOptions:
    """Options of the two deployments, as `serve.deployment` takes them.

    Attributes:
        engine: Of the engine's.
        ingress: Of the ingress's.
    """

    engine: Mapping[str, Any] = field(default_factory=dict)
    ingress: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moved:
    """Ray's arguments as ours.

    Attributes:
        plain: Our arguments, as a configuration file would have them.
        places: Where each of our keys stands in the arguments as given.
        problems: Everything that keeps them from being served; empty where nothing does.
        options: Of the deployments; empty where there are problems.
    """

    plain: Mapping[str, Any]
    places: Mapping[KeyPath, KeyPath]
    problems: tuple[Problem, ...] = ()
    options: DeploymentOptions = DeploymentOptions()

    def settings(self) -> ServeArgs:
        """Return the settings.

        Raises:
            ConfigError: There are problems; all of them are in the message.
        """
        if self.problems:
            raise ConfigError(joined(self.problems))
        return value_from(ServeArgs, self.plain)

    def as_given(self, problem: Problem) -> Problem:
        """Return a problem of ours with the place and the names of the arguments as given."""
        place, message = self.place_of(problem.path), problem.message
        renamed = {ours: theirs for theirs, ours in _SAME.items()} | dict(self.places)
        for ours, theirs in renamed.items():
            message = message.replace(dotted(ours), dotted(theirs[len(_MODEL) :]))
        return Problem(place, message, problem.value)

    def place_of(self, ours: KeyPath) -> KeyPath:
        """Return where a key of ours, or what holds it, stands in the arguments as given."""
        for length in range(len(ours), 0, -1):
            if ours[:length] in self.places:
                return self.places[ours[:length]]
        return _KWARGS if ours[:1] == ("engine",) else _MODEL


def moved_from(args: Mapping[str, Any]) -> Moved:
    """Return Ray's arguments as ours, with every problem beside."""
    refused: list[Problem] = []
    kept = _kept(args, (), refused)
    found = [*refused, *problems_in(LlmArgs, kept, ()), *_count_problems(kept)]
    plain, places = _ours(kept)
    moved = Moved(plain, places)
    if not found:
        found += [moved.as_given(each) for each in problems_in(ServeArgs, plain, ())]
        found += _drafter_problems(kept)
    options = _options(kept, _limits_of(plain) if not found else EngineLimits())
    found += _option_problems(kept, options)
    return Moved(plain, places, tuple(found), DeploymentOptions() if found else options)


def _kept(value: Any, path: KeyPath, refused: list[Problem]) -> Any:
    """Return a value without what asks for nothing; what is refused goes into the list."""
    if isinstance(value, list) and path == (LLM_CONFIGS,):
        return [_kept(each, (*path, index), refused) for index, each in enumerate(value)]
    level = tuple(part for part in path if isinstance(part, str))
    if not isinstance(value, Mapping) or path in (_ENGINE_AT, _INGRESS_AT):
        return value
    kept = {}
    for key, inner in value.items():
        refusal = REFUSED.get(level, {}).get(key)
        if refusal is None and inner is not None:
            kept[key] = _kept(inner, (*path, key), refused)
        elif refusal is not None and not _is_neutral(inner, refusal.neutral):
            refused.append(Problem((*path, key), f"It is not read here. {refusal.fix}", inner))
    return kept


def _is_neutral(value: object, neutral: tuple[object, ...]) -> bool:
    return value is None or any(value == each and type(value) is type(each) for each in neutral)


def _count_problems(kept: Mapping[str, Any]) -> Iterator[Problem]:
    configs = kept.get(LLM_CONFIGS)
    if isinstance(configs, list) and not configs:
        yield Problem((LLM_CONFIGS,), "It must have one model's settings.", configs)
    if isinstance(configs, list) and len(configs) > 1:
        yield Problem(
            (LLM_CONFIGS, 1),
            f"An application here serves one model, and {len(configs)} are listed: a replica's "
            "memory is planned for one. Give each an application of its own, with a route_prefix "
            "of its own.",
        )


def _drafter_problems(kept: Mapping[str, Any]) -> Iterator[Problem]:
    given = _at(kept, _SPECULATIVE) or {}
    if given and given.get("model") is None and given.get("method") != "mtp":
        yield Problem((*_SPECULATIVE, "model"), "Name the drafter's folder or hub id.")


def _ours(kept: Mapping[str, Any]) -> tuple[dict[str, Any], dict[KeyPath, KeyPath]]:
    """Return our arguments, and where each of them was given."""
    plain: dict[Any, Any] = {"engine": {}}
    places: dict[KeyPath, KeyPath] = {}

    def put(ours: KeyPath, value: object, theirs: KeyPath) -> None:
        if value is not None:
            *inner, last = ours
            place = plain
            for key in inner:
                place = place.setdefault(key, {})
            place[last] = value
            places[ours] = theirs

    for theirs, ours in _SAME.items():
        put(ours, _at(kept, theirs), theirs)
    loading: KeyPath = (*_MODEL, "model_loading_config")
    source = next(
        (at for key in ("model_source", "model_id") if _at(kept, at := (*loading, key))), loading
    )
    put(("engine", "model"), _at(kept, source), source)
    dtype = _at(kept, (*_KWARGS, "dtype"))
    if dtype != "auto":
        put(("engine", "dtype"), _DTYPES.get(dtype, dtype), (*_KWARGS, "dtype"))
    num_bytes = _at(kept, (*_KWARGS, "kv_cache_memory_bytes"))
    if isinstance(num_bytes, int):
        at = (*_KWARGS, "kv_cache_memory_bytes")
        put(("engine", "kv_cache", "memory_gib"), num_bytes / GIB, at)
    drafter = (*_SPECULATIVE, "model")
    # As there: MTP alone is the head that the target's own checkpoint holds.
    if _at(kept, drafter) is None and _at(kept, (*_SPECULATIVE, "method")) == "mtp":
        put(("engine", "speculation", "drafter"), _at(kept, source), (*_SPECULATIVE, "method"))
    put(("engine", "speculation", "drafter"), _at(kept, drafter), drafter)
    return plain, places


def _limits_of(plain: Mapping[str, Any]) -> EngineLimits:
    return value_from(ServeArgs, plain).engine.limits


def _options(kept: Mapping[str, Any], limits: EngineLimits) -> DeploymentOptions:
    """Return the options of both deployments: as given, over those that suit this server."""
    given = _mapping(kept, _ENGINE_AT)
    # A card belongs to one replica: target and drafters twice on one would not fit.
    accelerator = _at(kept, (*_MODEL, "accelerator_type"))
    card = {"num_gpus": 1, "accelerator_type": accelerator} if accelerator else {}
    environment = _at(kept, (*_MODEL, "runtime_env"))
    engine = {
        **_ENGINE_OPTIONS,
        # Room for all requests that an engine runs and queues.
        "max_ongoing_requests": limits.max_num_seqs + limits.max_num_waiting,
        **given,
        "ray_actor_options": {
            **_ENGINE_ACTOR,
            **({"runtime_env": environment} if environment else {}),
            **card,
            **_mapping(given, ("ray_actor_options",)),
        },
    }
    if isinstance(scaling := given.get("autoscaling_config"), Mapping):
        # Another replica starts before requests have to wait.
        target = {"target_ongoing_requests": max(1, limits.max_num_seqs * 3 // 4)}
        engine["autoscaling_config"] = {**target, **scaling}
    given = _mapping(kept, _INGRESS_AT)
    count = _at(kept, (*_MODEL, "experimental_configs", "num_ingress_replicas"))
    ingress = {
        **_INGRESS_OPTIONS,
        **({} if count is None else {"num_replicas": count}),
        **given,
        "ray_actor_options": {**_INGRESS_ACTOR, **_mapping(given, ("ray_actor_options",))},
    }
    return DeploymentOptions(engine, ingress)


def _option_problems(kept: Mapping[str, Any], options: DeploymentOptions) -> Iterator[Problem]:
    for at, all_options in ((_ENGINE_AT, options.engine), (_INGRESS_AT, options.ingress)):
        given = _mapping(kept, at)
        if "name" in given:
            fix = "This application's deployments have names of their own; leave it out."
            yield Problem((*at, "name"), fix, given["name"])
        yield from problems_by_serve(DeploymentSchema, {"name": "Engine", **all_options}, at)
        yield from scaling_problems(all_options, at)
        user_config = given.get("user_config")
        if user_config is not None and at == _INGRESS_AT:
            yield Problem((*at, "user_config"), "Only deployment_config takes one.", user_config)
        elif user_config is not None:
            yield from problems_in(UserConfig, user_config, (*at, "user_config"))


def _at(value: Any, path: KeyPath) -> Any:
    """Return what lies at a path; None where nothing does."""
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


def _mapping(value: Any, path: KeyPath) -> Mapping[str, Any]:
    inner = _at(value, path)
    return inner if isinstance(inner, Mapping) else {}

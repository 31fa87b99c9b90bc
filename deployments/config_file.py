"""A whole `serve_config.yaml` checked without starting anything: Serve drops unknown keys."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from ray.serve.schema import ServeDeploySchema

from deployments.app import ENGINE_NAME
from deployments.config import ServeArgs, UserConfig
from deployments.ingress import INGRESS_NAME
from deployments.strict import KeyPath, Problem, problems_in, unknown_key

_MAX_PORT = 65_535
_OUR_IMPORT_PATH = "deployments.app:build"


def problems_of_file(path: Path) -> list[Problem]:
    """Return the problems of a configuration file, with their lines, in their order."""
    try:
        text = path.read_text(encoding="utf-8")
        config = yaml.safe_load(text)
    except OSError as error:
        return [Problem((str(path),), f"The file cannot be read: {error.strerror}.")]
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        reason = getattr(error, "problem", None) or error
        return [Problem((str(path),), f"The file is not YAML: {reason}.", line=line)]
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    placed = [replace(each, line=_line_of(root, each.path)) for each in problems_of(config)]
    return sorted(placed, key=lambda each: each.line or 0)


def problems_of(config: object) -> list[Problem]:
    """Return the problems of a configuration, read as YAML reads it."""
    if not isinstance(config, Mapping):
        return [Problem((), "The file must be a mapping with a key 'applications'.", config)]
    found = [*_unknown_keys(ServeDeploySchema, config, ())]
    found += _serve_problems(config)
    found += _port_problems(config.get("http_options"))
    for index, application in enumerate(_mappings(config.get("applications"))):
        found += _application_problems(application, ("applications", index))
    return found


def _serve_problems(config: Mapping[str, Any]) -> Iterator[Problem]:
    try:
        with warnings.catch_warnings():
            # `metrics_interval_s` is announced as deprecated, but what should replace it does
            # nothing in this release of Ray.
            warnings.simplefilter("ignore", DeprecationWarning)
            ServeDeploySchema.model_validate(config)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_context=False):
            # Labels of the validator's own branches are no keys.
            path = tuple(part for part in each["loc"] if _is_in(config, each["loc"], part))
            if each["type"] != "extra_forbidden":
                yield Problem(path or each["loc"], f"{each['msg']}.", each["input"])


def _port_problems(http_options: object) -> Iterator[Problem]:
    """Find a port that no socket can have; Serve finds it when it binds."""
    port = http_options.get("port") if isinstance(http_options, Mapping) else None
    if isinstance(port, int) and not 0 <= port <= _MAX_PORT:
        yield Problem(("http_options", "port"), f"It must be in [0, {_MAX_PORT}].", port)


def _application_problems(application: Mapping[str, Any], path: KeyPath) -> Iterator[Problem]:
    is_ours = application.get("import_path") == _OUR_IMPORT_PATH
    if is_ours:
        yield from problems_in(ServeArgs, application.get("args") or {}, (*path, "args"))
    for index, deployment in enumerate(_mappings(application.get("deployments"))):
        at = (*path, "deployments", index)
        yield from _scaling_problems(deployment, at)
        if not is_ours:
            continue
        name = deployment.get("name")
        if name not in (INGRESS_NAME, ENGINE_NAME):
            message = f"This application has {INGRESS_NAME} and {ENGINE_NAME}."
            yield Problem((*at, "name"), message, name)
        user_config = deployment.get("user_config")
        if user_config is None:
            continue
        if name == ENGINE_NAME:
            yield from problems_in(UserConfig, user_config, (*at, "user_config"))
        else:
            yield Problem((*at, "user_config"), f"Only {ENGINE_NAME} takes one.", user_config)


def _scaling_problems(deployment: Mapping[str, Any], path: KeyPath) -> Iterator[Problem]:
    """Find autoscaling settings that Serve takes and that do not do what they say."""
    scaling = deployment.get("autoscaling_config")
    if not isinstance(scaling, Mapping):
        return
    at = (*path, "autoscaling_config")
    look_back_s = scaling.get("look_back_period_s", 30)
    for key, default_s in (("upscale_delay_s", 30), ("downscale_delay_s", 600)):
        delay_s = scaling.get(key, default_s)
        if _is_under(delay_s, look_back_s):
            message = f"A delay under look_back_period_s ({look_back_s}) makes replicas flap."
            yield Problem((*at, key), message, delay_s)
    target = scaling.get("target_ongoing_requests", 2)
    most = deployment.get("max_ongoing_requests", 5)
    if not _is_under(target, most):
        message = f"It must be under max_ongoing_requests ({most}), or queues never scale it up."
        yield Problem((*at, "target_ongoing_requests"), message, target)


def _unknown_keys(schema: type[BaseModel], value: object, path: KeyPath) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        return
    for key, inner in value.items():
        known = schema.model_fields
        if key not in known:
            yield unknown_key(key, known, path)
            continue
        inner_schema = _model_in(known[key].annotation)
        if inner_schema is None:
            continue
        if isinstance(inner, Sequence) and not isinstance(inner, str):
            for index, item in enumerate(inner):
                yield from _unknown_keys(inner_schema, item, (*path, key, index))
        else:
            yield from _unknown_keys(inner_schema, inner, (*path, key))


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Return the model a field holds: itself, in a list, or as one side of a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) is dict:
        return None
    inner = (_model_in(argument) for argument in get_args(annotation))
    return next((model for model in inner if model is not None), None)


def _mappings(value: object) -> list[Mapping[str, Any]]:
    items = value if isinstance(value, list) else []
    return [item if isinstance(item, Mapping) else {} for item in items]


def _is_under(value: object, bound: object) -> bool:
    numbers = isinstance(value, int | float) and isinstance(bound, int | float)
    return numbers and value < bound  # type: ignore[operator]


def _is_in(config: object, location: KeyPath, part: str | int) -> bool:
    """Return whether a part of a validator's location is a key or index of the file."""
    for each in location:
        inner = _inner(config, each)
        if inner is not None:
            config = inner
        elif each == part:
            return False
    return True


def _inner(config: object, part: str | int) -> object:
    if isinstance(config, Mapping):
        return config.get(part)
    if isinstance(config, list) and isinstance(part, int) and part < len(config):
        return config[part]
    return None


def _line_of(root: yaml.Node | None, path: KeyPath) -> int | None:
    """Return the line of the deepest part of a path that the file has."""
    node, line = root, None
    for part in path:
        if isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if pair[0].value == part), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            item: yaml.Node = node.value[part]
            line, node = item.start_mark.line + 1, item
    return line

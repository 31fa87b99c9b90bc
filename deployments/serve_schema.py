"""Serve's own schemas, read strictly: Serve drops unknown keys and takes what cannot act."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from deployments.strict import KeyPath, Problem, unknown_key


def problems_by_serve(
    schema: type[BaseModel], value: Mapping[str, Any], path: KeyPath
) -> Iterator[Problem]:
    """Yield unknown keys, at any depth, and what the schema itself refuses."""
    yield from _unknown_keys(schema, value, path)
    try:
        with warnings.catch_warnings():
            # `metrics_interval_s` is announced as deprecated, but what should replace it does
            # nothing in this release of Ray.
            warnings.simplefilter("ignore", DeprecationWarning)
            schema.model_validate(value)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_context=False):
            # Labels of the validator's own branches are no keys.
            inner = tuple(part for part in each["loc"] if _is_in(value, each["loc"], part))
            if each["type"] != "extra_forbidden":
                yield Problem((*path, *(inner or each["loc"])), f"{each['msg']}.", each["input"])


def scaling_problems(deployment: Mapping[str, Any], path: KeyPath) -> Iterator[Problem]:
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


def _is_under(value: object, bound: object) -> bool:
    return isinstance(value, int | float) and isinstance(bound, int | float) and value < bound


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

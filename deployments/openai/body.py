"""From the bytes of a request to a checked body, each refusal naming its field."""

import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from deployments.openai import errors
from deployments.openai.errors import ApiError, RefusedError
from deployments.openai.refused import REFUSED, asks_for_nothing
from deployments.openai.schemas import (
    ChatBody,
    CompletionBody,
    GenerationBody,
    StreamOptions,
)

BodyT = TypeVar("BodyT", bound=BaseModel)

# Where a slip of the pen ends and another engine's field begins: "max_token" is ours
# misspelt, "top_a" is not.
_SLIP_SIMILARITY = 0.86
# A JSON schema nests two levels for each of its own.
_MAX_DEPTH = 100
# Each is compared with every field of ours.
_MAX_FOREIGN_FIELDS = 64
_MAX_IGNORED_NAMES = 16
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_INNER_FIELDS = frozenset(
    {
        "role",
        "content",
        "name",
        "tool_calls",
        "tool_call_id",
        "type",
        "json_schema",
        "schema",
        "strict",
        "function",
        "parameters",
        "description",
        "arguments",
        "include_usage",
        "continuous_usage_stats",
        "mode",
        "max_draft_len",
    }
)


async def read_body(request: Request) -> bytes:
    """Return the request's body.

    Raises:
        RefusedError: It is not declared as JSON, or is over the limit.
    """
    content_type = request.headers.get("content-type", "")
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise RefusedError(errors.unsupported_media_type(content_type))
    return await request.body()


def parse_body(raw: bytes, body_type: type[BodyT]) -> tuple[BodyT, tuple[str, ...]]:
    """Return the checked body and the names of the fields that were ignored.

    Raises:
        RefusedError: The body is not JSON, or a field cannot be served; the error names it.
    """
    fields = json_object(raw)
    served = body_type.model_fields
    for name, value in fields.items():
        if name not in served and name in REFUSED and not asks_for_nothing(name, value):
            raise RefusedError(errors.unsupported_parameter(name, REFUSED[name].reason))
    foreign = _foreign(fields, {*served, *REFUSED})
    options = fields.get("stream_options")
    if isinstance(options, dict):
        inner = cast("dict[str, Any]", options)
        foreign += _foreign(inner, set(StreamOptions.model_fields), "stream_options.")
    try:
        body = body_type.model_validate(fields)
    except ValidationError as error:
        raise RefusedError(_first_problem(error)) from error
    if isinstance(body, GenerationBody):
        _refuse_unserved_values(body)
    return body, _printable(foreign)


def _foreign(fields: Mapping[str, Any], known: set[str], place: str = "") -> list[str]:
    """Return the names that are not ours; those that nearly are, are refused.

    A slip of the pen must not become a default.

    Args:
        fields: What a client sent.
        known: Names of ours.
        place: What leads to these fields in the body.
    """
    foreign = [name for name in fields if name not in known]
    if len(foreign) > _MAX_FOREIGN_FIELDS:
        raise RefusedError(
            errors.invalid_json(f"it has {len(foreign)} unknown fields, over {_MAX_FOREIGN_FIELDS}")
        )
    for name in foreign:
        nearest = get_close_matches(name[:64], known, n=1, cutoff=_SLIP_SIMILARITY)
        if nearest:
            # ASCII, because a name may hold what UTF-8 cannot carry.
            param = f"{place}{ascii(name[:64])[1:-1]}"
            raise RefusedError(errors.misspelt_parameter(param, f"{place}{nearest[0]}"))
    return [f"{place}{name}" for name in foreign]


def json_object(raw: bytes) -> dict[str, Any]:
    """Return a body that is one JSON object.

    Raises:
        RefusedError: It is none.
    """
    try:
        value: Any = json.loads(raw.decode("utf-8"))
    except RecursionError:
        raise RefusedError(errors.invalid_json("it is nested too deeply")) from None
    except ValueError as error:
        # Decoding errors, syntax errors and integers of thousands of digits.
        raise RefusedError(errors.invalid_json(str(error)[:200])) from error
    # What has fewer brackets than that, texts included, needs no look.
    if raw.count(b"[") + raw.count(b"{") > _MAX_DEPTH and not _is_within(value, _MAX_DEPTH):
        raise RefusedError(errors.invalid_json(f"it is nested over {_MAX_DEPTH} levels deep"))
    if not isinstance(value, dict):
        raise RefusedError(errors.invalid_json(f"it is a {type(value).__name__}"))
    return cast("dict[str, Any]", value)


def _is_within(value: object, max_depth: int) -> bool:
    """Return whether arrays and objects are nested so deep at most, looking level by level."""
    level = [value]
    for _ in range(max_depth):
        level = [item for each in level for item in _inner(each) if isinstance(item, dict | list)]
        if not level:
            return True
    return False


def _inner(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value)


def _first_problem(error: ValidationError) -> ApiError:
    problem = error.errors(include_url=False, include_context=False)[0]
    param = _param_of(problem["loc"])
    if problem["type"] == "extra_forbidden":
        key = _shown(problem["loc"][-1])
        return errors.invalid_parameter(param, f"{param}: there is no field {key} in it")
    given = "" if problem["type"] == "missing" else f", got {_shown(problem['input'])}"
    reason = problem["msg"][:1].lower() + problem["msg"][1:]
    return errors.invalid_parameter(param, f"{param}: {reason}{given}")


def _param_of(location: tuple[int | str, ...]) -> str:
    """Return the path of a field as a client writes it, without the validator's own labels."""
    path = str(location[0])
    for part in location[1:]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part in _INNER_FIELDS:
            path += f".{part}"
    return path


def _shown(value: object) -> str:
    """Return a short, printable form of a client's value."""
    if isinstance(value, list | dict):
        kind = "an array" if isinstance(value, list) else "an object"
        return f"{kind} of {len(cast('list[Any] | dict[str, Any]', value))}"
    # ASCII, because the value may hold what UTF-8 cannot carry.
    text = ascii(value[:60]) if isinstance(value, str) else ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _refuse_unserved_values(body: GenerationBody) -> None:
    """Refuse fields that are served for some values only."""
    if body.stream_options is not None and not body.stream:
        raise RefusedError(
            errors.invalid_parameter(
                "stream_options", "stream_options needs stream to be true; leave it out"
            )
        )
    options = body.stream_options
    if options is not None and options.continuous_usage_stats and not options.include_usage:
        raise RefusedError(
            errors.invalid_parameter(
                "stream_options.continuous_usage_stats",
                "continuous_usage_stats needs include_usage to be true",
            )
        )
    if isinstance(body, ChatBody):
        _refuse_unserved_chat_values(body)
    elif isinstance(body, CompletionBody):
        _refuse_unserved_completion_values(body)


def _refuse_unserved_chat_values(body: ChatBody) -> None:
    if body.top_logprobs is not None and not body.logprobs:
        raise RefusedError(
            errors.invalid_parameter("top_logprobs", "top_logprobs needs logprobs to be true")
        )


def _refuse_unserved_completion_values(body: CompletionBody) -> None:
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise RefusedError(
            errors.unsupported_parameter(
                "best_of", "choices are not ranked; send the number of n, or leave it out"
            )
        )
    if body.echo and body.logprobs is not None:
        raise RefusedError(
            errors.unsupported_parameter(
                "echo", "not together with logprobs, which are of generated tokens only"
            )
        )


def _printable(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that a header can carry, at most a few."""
    return tuple(name for name in names if _PLAIN_NAME.fullmatch(name))[:_MAX_IGNORED_NAMES]

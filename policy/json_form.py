"""Values as JSON and back, bit for bit: what a log holds can be decided upon again."""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from policy.errors import PolicyError

Value = TypeVar("Value")

_SCALARS = (int, float, str, bool)


def as_json(value: object) -> str:
    """Return a value of the policy as one line. Floats are written so that they read back alike."""
    return json.dumps(_plain(value), allow_nan=False, separators=(",", ":"))


def from_json(kind: type[Value], text: str) -> Value:
    """Return the value that a line was written from.

    Raises:
        PolicyError: The line is no JSON, or no such value.
    """
    try:
        return _built(kind, json.loads(text))
    # A whole number may be too large for a float, and a line too deep to be read.
    except (
        *(ValueError, TypeError, KeyError, AttributeError),
        *(OverflowError, RecursionError),
    ) as error:
        raise PolicyError(
            f"this line is no {kind.__name__} ({error}): {text[:80]!r}; "
            "read a file that this version wrote"
        ) from error


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _built(kind: Any, value: Any) -> Any:
    if kind in _SCALARS:
        return _scalar(kind, value)
    if isinstance(kind, type):
        return _instance(kind, value)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is tuple:
        return _tuple(parts, value)
    if origin is Mapping:
        return {key: _built(parts[1], item) for key, item in value.items()}
    (inner,) = (part for part in parts if part is not type(None))
    return None if value is None else _built(inner, value)


def _instance(kind: type, value: Any) -> Any:
    if issubclass(kind, Enum):
        return kind(value)
    hints = _hints(kind)
    return kind(**{name: _built(hints[name], item) for name, item in value.items()})


def _tuple(kinds: tuple[Any, ...], values: list[Any]) -> tuple[Any, ...]:
    if kinds[-1] is ...:
        return tuple(_built(kinds[0], value) for value in values)
    return tuple(_built(kind, value) for kind, value in zip(kinds, values, strict=True))


def _scalar(kind: type, value: Any) -> Any:
    # A whole float may have been an int where it was made; a bool is no number here.
    wanted = (int, float) if kind is float else kind
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is never written")
    return value


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)

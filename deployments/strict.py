"""Plain values against frozen dataclasses: every unknown key and wrong value, with its path."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from dflash.errors import ConfigError

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a configuration.

    Attributes:
        path: Keys and list indexes from the top to the place.
        message: What would work.
        value: What is there; None says nothing where the key itself is the problem.
        line: Its line in the file, from 1; None where it came from no file.
    """

    path: KeyPath
    message: str
    value: object = None
    line: int | None = None

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.message}"

    def report(self) -> str:
        """Return the problem as it follows a file's name, value on the first line, fix below."""
        place = "" if self.line is None else f":{self.line}"
        value = "" if self.value is None else f" = {str(self.value)[:80]}"
        return f"{place}  {dotted(self.path)}{value}\n    {self.message}"


def dotted(path: KeyPath) -> str:
    """Return a path as people write it: ``applications[0].args``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def unknown_key(key: object, known: Iterable[str], path: KeyPath) -> Problem:
    """Return the problem of a key that does not exist, with the nearest one that does."""
    nearest = get_close_matches(str(key), known := sorted(known), n=1, cutoff=0.6)
    hint = f"Did you mean {nearest[0]}?" if nearest else f"Keys here: {', '.join(known)}."
    return Problem((*path, str(key)), f"No such key. {hint}")


def problems_in(schema: type[Any], value: object, path: KeyPath) -> list[Problem]:
    """Return everything that keeps a value from being an instance of a dataclass."""
    return list(_walk(schema, value, path))


def value_from(schema: type[Any], value: object) -> Any:
    """Return the instance that a value without problems describes."""
    return TypeAdapter(schema).validate_json(json.dumps(value), strict=True)


def _walk(schema: type[Any], value: object, path: KeyPath) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        yield Problem(path, "It must be a mapping of keys to values.", value)
        return
    types = get_type_hints(schema)
    known = [each.name for each in fields(schema)]
    yield from (unknown_key(key, known, path) for key in value if key not in known)
    plain: dict[str, object] = {}
    for key in known:
        if key not in value:
            continue
        if is_dataclass(types[key]):
            yield from _walk(types[key], value[key], (*path, key))
        else:
            plain[key] = value[key]
    # Nested parts have been walked, so that one of them cannot hide the problems of another.
    yield from _value_problems(schema, plain, path)


def _value_problems(
    schema: type[Any], plain: dict[str, object], path: KeyPath
) -> Iterator[Problem]:
    try:
        # As JSON: strict about types, and enumerations are written as their values.
        TypeAdapter(schema).validate_json(json.dumps(plain, default=str), strict=True)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_context=False):
            at = (*path, *each["loc"][:1])
            yield Problem(at, f"{each['msg']}.", each["input"])
    except ConfigError as error:
        # The engine's messages begin with the key, the last part of which is one of ours.
        key = str(error).split(maxsplit=1)[0].rpartition(".")[2]
        yield Problem((*path, key), f"{error}.", plain.get(key))

"""Plain values against frozen dataclasses: every unknown key and wrong value, with its path."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date
from difflib import get_close_matches
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from dflash.errors import ConfigError
from policy.errors import PolicyError

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
        return f"{dotted(self.path)}{self._shown}: {self.message}"

    def report(self) -> str:
        """Return the problem as it follows a file's name, value on the first line, fix below."""
        place = "" if self.line is None else f":{self.line}"
        return f"{place}  {dotted(self.path)}{self._shown}\n    {self.message}"

    @property
    def _shown(self) -> str:
        return "" if self.value is None else f" = {str(self.value)[:80]}"


def joined(problems: Iterable[Problem]) -> str:
    """Return problems as one line, for an error's message, which any file can hold."""
    return "; ".join(map(str, problems)).encode(errors="backslashreplace").decode()


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
        inner, at = value[key], (*path, key)
        if is_dataclass(types[key]):
            yield from _walk(types[key], inner, at)
        elif (item := _item_schema(types[key])) and isinstance(inner, list):
            for index, each in enumerate(inner):
                yield from _walk(item, each, (*at, index))
        else:
            plain[key] = inner
    unfit = [*_unfit(plain, path)]
    yield from unfit
    # Nested parts have been walked, so that one of them cannot hide the problems of another.
    if not unfit:
        walked = value.keys() - plain.keys()
        yield from _value_problems(schema, plain, path, walked)


def _unfit(value: object, path: KeyPath) -> Iterator[Problem]:
    """Yield what no JSON can hold, which Serve makes of a configuration, however deep it lies."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _unfit_key(key, (*path, str(key)))
            yield from _unfit(inner, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _unfit(inner, (*path, index))
    elif isinstance(value, date):
        yield Problem(path, "YAML reads this as a date, which Serve refuses: quote it.", value)
    elif isinstance(value, str):
        yield from _half(value, path)
    elif not isinstance(value, int | float | None):
        yield Problem(path, "It must be text, a number, true, false, null or a list.", value)


def _unfit_key(key: object, path: KeyPath) -> Iterator[Problem]:
    if isinstance(key, str):
        yield from _half(key, path)
    elif not isinstance(key, int | float | None):
        yield Problem(path, "A key must be text: quote it.")


def _half(text: str, path: KeyPath) -> Iterator[Problem]:
    """Yield the problem of a text that no file can hold, for half of a pair stands alone."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        yield Problem(path, "It holds half of a character; write it anew.", text)


def _value_problems(
    schema: type[Any], plain: dict[str, object], path: KeyPath, walked: Collection[str]
) -> Iterator[Problem]:
    try:
        # As JSON: strict about types, and enumerations are written as their values.
        TypeAdapter(schema).validate_json(json.dumps(plain), strict=True)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_context=False):
            at = (*path, *_keys_in(plain, each["loc"]))
            if each["type"] != "missing":
                yield Problem(at, f"{each['msg']}.", each["input"])
            elif each["loc"][0] not in walked:
                # The validator would show what stands around it, which may be the whole file.
                yield Problem(at, "It is missing, and has no default: set it.")
    except (ConfigError, PolicyError) as error:
        # The message begins with the key in full; from one of our fields on it is ours.
        named = str(error).split(maxsplit=1)[0].split(".")
        known = {each.name for each in fields(schema)}
        keys = next((named[at:] for at, key in enumerate(named) if key in known), named[-1:])
        yield Problem((*path, *keys), f"{error}.", _value_at(plain, keys))


def _keys_in(value: object, location: KeyPath) -> KeyPath:
    """Return the first part of a validator's location, and those after it that are keys, too.

    Others are labels of the validator's own branches.
    """
    if not location:
        # Of the whole: it is nested too deeply to be read.
        return ()
    first, *rest = location
    inner = value.get(first) if isinstance(value, Mapping) else None
    keys = [first]
    for key in rest:
        if not isinstance(inner, Mapping) or key not in inner:
            break
        keys.append(key)
        inner = inner[key]
    return tuple(keys)


def _value_at(value: object, keys: Sequence[str]) -> object:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _item_schema(annotation: Any) -> type[Any] | None:
    """Return the dataclass that a tuple has any number of; None where it has none."""
    item = next(iter(get_args(annotation)), None)
    is_schema = isinstance(item, type) and is_dataclass(item)
    return item if is_schema and get_origin(annotation) is tuple else None

"""Parameters behind the question mark, read strictly: each acts or is refused by its name."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from starlette.requests import Request

from deployments.openai import errors
from deployments.openai.errors import RefusedError


def query_of(request: Request, known: Collection[str]) -> Mapping[str, str]:
    """Return the parameters of a request; those without a value count as left out.

    Raises:
        RefusedError: One is unknown, or there twice.
    """
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise RefusedError(
                errors.invalid_parameter(ascii(name[:64])[1:-1], _unknown(name, known))
            )
        if name in given:
            raise RefusedError(errors.invalid_parameter(name, f"{name} is there twice; give one"))
        given[name] = value
    return {name: value for name, value in given.items() if value}


def one_of(param: str, value: str, known: Collection[str]) -> str:
    """Return a value that must be among some.

    Raises:
        RefusedError: It is not; the message has the nearest and all of them.
    """
    if value in known:
        return value
    nearest = get_close_matches(value[:64], known, n=1, cutoff=0.5)
    hint = f" Did you mean {nearest[0]}?" if nearest else ""
    listed = ", ".join(sorted(known)[:32]) or "none yet"
    raise RefusedError(
        errors.invalid_parameter(
            param, f"{param} is {value[:64]!a}, which is not here.{hint} There are: {listed}"
        )
    )


def whole_number(param: str, value: str | None, default: int, most: int) -> int:
    """Return a number from 1 to a bound.

    Raises:
        RefusedError: It is none.
    """
    if value is None:
        return default
    if not value.isdecimal() or len(value) > 9 or not 1 <= int(value) <= most:
        raise RefusedError(
            errors.invalid_parameter(
                param, f"{param} is {value[:20]!a}; give a whole number from 1 to {most}"
            )
        )
    return int(value)


def _unknown(name: str, known: Collection[str]) -> str:
    nearest = get_close_matches(name[:64], known, n=1, cutoff=0.6)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(sorted(known))}"
    return f"there is no parameter {name[:64]!a}; {hint}"

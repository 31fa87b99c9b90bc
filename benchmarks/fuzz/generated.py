"""Requests that schemathesis makes of the server's own OpenAPI document, valid and not."""

import json
import warnings
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case, GenerationMode

from benchmarks.fuzz.sending import FuzzRequest


def generated(document: dict[str, Any], count: int, model: str, number: int) -> list[FuzzRequest]:
    """Return requests of all operations; those that read a body get the most.

    Args:
        document: The OpenAPI document.
        count: How many, at least.
        model: Stands in for the names that no server has, in all but a few: behind a name that is
            refused nothing else is looked at.
        number: Seed; equal seeds give equal requests.
    """
    operations = [
        each.ok() for each in schemathesis.openapi.from_dict(document).get_all_operations()
    ]
    weights = {each.label: 8 if each.body else 1 for each in operations}
    share = count / (2 * sum(weights.values()))
    made: list[FuzzRequest] = []
    for operation in operations:
        for mode in GenerationMode:
            wanted = -int(-share * weights[operation.label] // 1)
            cases = _cases(operation, mode, wanted, number)
            made += [_request(case, model, index) for index, case in enumerate(cases)]
    return made


def _cases(operation: Any, mode: GenerationMode, wanted: int, number: int) -> list[Case]:
    made: list[Case] = []

    @seed(number)
    @settings(
        max_examples=wanted,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def collect(case: Case) -> None:
        made.append(case)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            collect()
        except Exception as error:
            # Nothing of this mode can be made of an operation without parameters.
            if "Unsatisfiable" not in type(error).__name__:
                raise
    return made


def _request(case: Case, model: str, index: int) -> FuzzRequest:
    query = f"?{urlencode(case.query, doseq=True)}" if case.query else ""
    headers = {name: str(value) for name, value in dict(case.headers or {}).items()}
    body = case.body
    if isinstance(body, dict) and "model" in body and index % 8:
        body = {**body, "model": model}
    if not isinstance(body, bytes | dict | list | str | int | float | bool | None):
        raw = None
    else:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers.setdefault("content-type", case.media_type or "application/json")
    return FuzzRequest(
        method=case.method.upper(),
        target=quote(case.formatted_path, safe="/%") + query,
        headers={name: value for name, value in headers.items() if _is_sendable(name, value)},
        body=raw,
        origin=f"schemathesis, {case.operation.label}",
    )


def _is_sendable(name: str, value: str) -> bool:
    return name.isascii() and value.isprintable() and value == value.strip()


def merged(*sources: Iterator[FuzzRequest]) -> Iterator[FuzzRequest]:
    """Yield of each source in turn until all are empty."""
    left = [*sources]
    while left:
        for source in [*left]:
            request = next(source, None)
            if request is None:
                left.remove(source)
            else:
                yield request

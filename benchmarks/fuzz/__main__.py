"""``python -m benchmarks.fuzz``: generated requests, each followed by a good one."""

import argparse
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import httpx

from benchmarks.fuzz.generated import generated, merged
from benchmarks.fuzz.mutations import mutated
from benchmarks.fuzz.recorded import recorded_requests
from benchmarks.fuzz.sending import Fault, FuzzRequest, outcome_of
from benchmarks.report import Options, Result, Table, progress, run_benchmark
from tests.rigs.http_server import serving

_FULL, _QUICK = 10_000, 1_000
_MAX_SHOWN = 20
_MAX_CURL_CHARACTERS = 20_000
_TIMEOUT_S = 10.0
_DRAIN = FuzzRequest("POST", "/admin/drain")
_GOOD = b'{"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}'


def measure(options: Options) -> Result:
    """Send them all, and count what must not be."""
    count = _QUICK if options.quick else _FULL
    with _server(options.arguments.url) as base_url, _client(base_url, options) as client:
        return _counted(client, base_url, count, options.arguments.seed)


def _counted(client: httpx.Client, base_url: str, count: int, seed: int) -> Result:
    model: str = client.get("/v1/models").raise_for_status().json()["data"][0]["id"]
    document = client.get("/openapi.json").raise_for_status().json()
    good = FuzzRequest(
        "POST",
        "/v1/chat/completions",
        {"content-type": "application/json"},
        _GOOD.replace(b"MODEL", f'"{model}"'.encode()),
        "a good request after",
    )
    made = generated(document, count // 2, model, seed)
    rng = random.Random(seed)
    rest = islice(mutated(recorded_requests(model), rng), count - len(made))
    faults, statuses, origins = Counter[Fault](), Counter[str](), Counter[str]()
    shown: list[str] = []
    num_unanswered = 0
    with progress(count, "requests") as bar:
        for request in merged(iter(made), rest):
            origins[request.origin.partition(",")[0]] += 1
            outcome = outcome_of(client, request)
            statuses[str(outcome.status)] += 1
            if outcome.fault is not None:
                faults[outcome.fault] += 1
                shown.append(f"{outcome.fault}: {outcome.detail}\n{_made_of(request, base_url)}")
            if (request.method, request.target.partition("?")[0]) == (_DRAIN.method, _DRAIN.target):
                # It did what it is for; the rest is for a server that takes work.
                outcome_of(client, replace(_DRAIN, method="DELETE"))
            # Whatever one client sent, the next must not feel it.
            after = outcome_of(client, good)
            if after.status != 200 or after.fault is not None:
                num_unanswered += 1
                shown.append(f"the good request after got {after}\n{_made_of(request, base_url)}")
            bar.update()
    for text in shown[:_MAX_SHOWN]:
        print(text)
    figures = {"requests": sum(origins.values())}
    figures |= {fault.value: faults[fault] for fault in Fault}
    figures["good_after_unanswered"] = num_unanswered
    rows = tuple((status, str(number)) for status, number in sorted(statuses.items()))
    return Result(
        figures=figures,
        must_hold={name: 0 for name in figures if name != "requests"},
        detail={"origins": dict(origins), "statuses": dict(statuses), "shown": shown},
        tables=(Table("Answers by status", ("status", "requests"), rows),),
    )


def _made_of(request: FuzzRequest, base_url: str) -> str:
    command = request.as_curl(base_url)
    if len(command) > _MAX_CURL_CHARACTERS:
        command = f"{command[:400]}... ({len(command)} characters; the same seed makes it again)"
    return f"  {request.origin}\n  {command}"


def _client(base_url: str, options: Options) -> httpx.Client:
    key = options.arguments.key
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(base_url=base_url, headers=headers, timeout=_TIMEOUT_S)


@contextlib.contextmanager
def _server(url: str | None) -> Iterator[str]:
    """Yield the address of a server: the one that is named, or ours over a scripted engine."""
    if url is not None:
        yield url.rstrip("/")
        return
    logging.disable(logging.INFO)
    with serving() as server:
        server.loop.tokens_per_step = 8
        yield server.base_url


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this benchmark's own arguments."""
    parser.add_argument("--url", help="a server that runs; default: ours over a scripted engine")
    parser.add_argument("--key", help="the API key of that server")
    parser.add_argument("--seed", type=int, default=0, help="equal seeds send equal requests")


if __name__ == "__main__":
    run_benchmark(
        "fuzz", "Generated requests that no server may fall over.", measure, add_arguments
    )

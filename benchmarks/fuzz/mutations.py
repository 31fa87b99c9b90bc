"""Requests of real clients with something made wrong: a value, the JSON, the headers, the path."""

import gzip
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from benchmarks.fuzz.oddities import CONTENT_TYPES, HEADERS, KEYS, METHODS, NUMBERS, TARGETS, TEXTS
from benchmarks.fuzz.sending import FuzzRequest


def mutated(recorded: list[FuzzRequest], rng: random.Random) -> Iterator[FuzzRequest]:
    """Yield mutated requests without end; equal seeds give equal requests."""
    ways = (
        (_odd_value, 40), (_odd_key, 12), (_broken_json, 18), (_odd_header, 12), (_odd_type, 6),
        (_odd_target, 8), (_compressed, 1), (_large, 1), (_untouched, 2),
    )  # fmt: skip
    mutators, weights = zip(*ways, strict=True)
    while True:
        mutate: Callable[..., FuzzRequest] = rng.choices(mutators, weights)[0]
        request = mutate(rng.choice(recorded), rng)
        if rng.random() < 0.1:
            request = _odd_header(request, rng)
        is_chunked = request.body is not None and rng.random() < 0.1
        yield replace(request, is_chunked=is_chunked, origin=f"{request.origin}: {mutate.__name__}")


def _odd(rng: random.Random, depth: int = 3) -> Any:
    """Return a value that nobody asked for, containers of such values among them."""
    makers = (
        lambda: rng.choice((None, True, False)),
        lambda: rng.choice(NUMBERS),
        lambda: rng.choice(TEXTS),
        lambda: rng.choice(([], {}, [[]], [None], {"": {}}, [{}] * 50)),
        lambda: _nested(rng),
        lambda: [_odd(rng, depth - 1) for _ in range(rng.choice((1, 3, 9)))],
        lambda: {rng.choice(KEYS): _odd(rng, depth - 1) for _ in range(3)},
    )
    return rng.choice(makers if depth else makers[:4])()


def _nested(rng: random.Random) -> Any:
    value: Any = rng.choice((1, "x", None))
    for _ in range(rng.choice((3, 60, 400))):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container in a value with each key or index of it."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(pairs):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def _content(request: FuzzRequest) -> Any:
    return json.loads(request.body or b"{}")


def _with(request: FuzzRequest, content: Any) -> FuzzRequest:
    return replace(request, body=json.dumps(content).encode())


def _odd_value(request: FuzzRequest, rng: random.Random) -> FuzzRequest:
    content = _content(request)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = [*_places(content)]
        if not places:
            break
        holder, key = rng.choice(places)
        if rng.random() < 0.1 and isinstance(holder, dict):
            del holder[key]
        else:
            holder[key] = [holder[key]] if rng.random() < 0.1 else _odd(rng)
    return _with(request, content)


def _odd_key(request: FuzzRequest, rng: random.Random) -> FuzzRequest:
    content = _content(request)
    holders = [content, *(h[k] for h, k in _places(content) if isinstance(h[k], dict))]
    rng.choice(holders)[rng.choice(KEYS)] = _odd(rng)
    if rng.random() < 0.05:
        content |= {f"key{index}": index for index in range(300)}
    return _with(request, content)


def _broken_json(request: FuzzRequest, rng: random.Random) -> FuzzRequest:
    body = request.body or b"{}"
    at = rng.randrange(len(body) + 1)
    cuts = (body[:at], body[:at] + rng.randbytes(3) + body[at:], b"", b"null", b'"text"')
    wraps = (body + b"}", b"[" + body + b"]", body + b"\n" + body, b"\xef\xbb\xbf" + body)
    deep = (b"[" * 90_000, b'{"a":' * 30_000, b"1" * 6000)
    texts = (body.replace(b'"', b"'"), body.decode().encode("utf-16"))
    ends = (
        b', "model": 5}',
        b', "temperature": -Infinity}',
        b', "top_p": NaN}',
        b', "seed": ' + b"9" * 5000 + b"}",
        b', "user": "\\ud83d"}',
    )
    broken = (*cuts, *wraps, *deep, *texts, *(body[:-1] + end for end in ends))
    return replace(request, body=rng.choice(broken))


def _odd_header(request: FuzzRequest, rng: random.Random) -> FuzzRequest:
    odd = dict(rng.sample(HEADERS, rng.choice((1, 1, 2, 4))))
    many = {f"x-junk-{index}": "y" for index in range(rng.choice((0, 0, 0, 40)))}
    return replace(request, headers={**request.headers, **odd, **many})


def _odd_type(request: FuzzRequest, rng: random.Random) -> FuzzRequest:
    headers = {**request.headers, "content-type": rng.choice(CONTENT_TYPES)}
    return replace(request, headers=headers)


def _odd_target(request: FuzzRequest, rng: random.Random) -> FuzzRequest:
    target = rng.choice((request.target, *TARGETS))
    method = rng.choice(METHODS)
    sends = method in ("POST", "PUT", "PATCH", "DELETE") and rng.random() < 0.7
    return replace(request, method=method, target=target, body=request.body if sends else None)


def _compressed(request: FuzzRequest, rng: random.Random) -> FuzzRequest:
    headers = {**request.headers, "content-encoding": rng.choice(("gzip", "deflate"))}
    return replace(request, headers=headers, body=gzip.compress(request.body or b"", mtime=0))


def _large(request: FuzzRequest, rng: random.Random) -> FuzzRequest:
    content = _content(request)
    size = rng.choice((300_000, 3_000_000, 5_000_000))
    key = rng.choice(("prompt", "user", "messages", "nothing"))
    content[key] = [{"role": "user", "content": "x" * size}] if key == "messages" else "x" * size
    return _with(request, content)


def _untouched(request: FuzzRequest, _rng: random.Random) -> FuzzRequest:
    return request

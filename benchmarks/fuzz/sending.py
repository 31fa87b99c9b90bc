"""One request to a server, its answer within a bounded time, and what is wrong with that."""

import base64
import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import httpx

from deployments.openai.errors import ApiError, ErrorCode

_BOUND_S = 15.0
_CODES = {code.value: code for code in ErrorCode}


class Fault(StrEnum):
    """What an answer must not be; the names of the figures."""

    BREAKS = "answers_5xx"
    HANGS = "hung"
    MALFORMED = "malformed_errors"


@dataclass(frozen=True, slots=True)
class FuzzRequest:
    """A request as it goes out.

    Attributes:
        method: In capitals.
        target: Path and query.
        headers: Beside those that every request has.
        body: Its bytes; None sends none.
        origin: What it was made of, for people.
        is_chunked: Whether the body's length is left unsaid.
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    origin: str = ""
    is_chunked: bool = False

    def as_curl(self, base_url: str) -> str:
        """Return a shell command that sends the same."""
        parts = ["curl", "-i", "--path-as-is", "-X", self.method]
        for name, value in self.headers.items():
            parts += ["-H", f"{name}: {value}" if value else f"{name};"]
        command = shlex.join([*parts, base_url + self.target])
        if self.body is None:
            return command
        encoded = base64.b64encode(self.body).decode()
        return f"echo {encoded} | base64 -d | {command} --data-binary @-"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a request.

    Attributes:
        status: Of the answer; None where none came.
        fault: What is wrong with it; None where nothing is.
        detail: In words.
    """

    status: int | None
    fault: Fault | None = None
    detail: str = ""


def outcome_of(client: httpx.Client, request: FuzzRequest) -> Outcome:
    """Send a request and return what came of it."""
    try:
        status, headers, body = _answer(client, request)
    except httpx.LocalProtocolError:
        # It was never sent: a fault of this benchmark.
        raise
    except (httpx.TransportError, TimeoutError) as error:
        return Outcome(None, Fault.HANGS, f"{type(error).__name__}: {error}")
    if status >= 500:
        return Outcome(status, Fault.BREAKS, f"{status}: {body[:300]!r}")
    if status >= 400 and request.method != "HEAD":
        reason = _why_malformed(status, headers, body)
        return Outcome(status, Fault.MALFORMED if reason else None, reason or "")
    if headers.get("content-type", "").startswith("text/event-stream"):
        return Outcome(status, *(_fault_in_stream(body) or ()))
    return Outcome(status)


def _answer(client: httpx.Client, request: FuzzRequest) -> tuple[int, httpx.Headers, bytes]:
    """Return status, headers and body.

    Raises:
        TimeoutError: It was not complete within the bound, however steadily it came.
        TransportError: There was none.
    """
    deadline_s = time.monotonic() + _BOUND_S
    content: Any = iter([request.body]) if request.is_chunked else request.body
    built = client.build_request(
        request.method, request.target, headers=_raw(request.headers), content=content
    )
    response = client.send(built, stream=True)
    received = bytearray()
    try:
        for part in response.iter_raw():
            received += part
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not complete after {_BOUND_S:.0f} s")
    finally:
        response.close()
    return response.status_code, response.headers, bytes(received)


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("utf-8")) for name, value in headers.items()]


def _why_malformed(status: int, headers: httpx.Headers, body: bytes) -> str | None:
    if not headers.get("content-type", "").startswith("application/json"):
        return f"{status} as {headers.get('content-type')}: {body[:200]!r}"
    try:
        content = json.loads(body)
    except ValueError:
        return f"{status} that is no JSON: {body[:200]!r}"
    return _why_no_error(content, status)


def _why_no_error(content: Any, status: int | None = None) -> str | None:
    """Return why a body is not in the error form; None where it is."""
    error = content.get("error") if isinstance(content, dict) else None
    if not isinstance(error, dict) or error.keys() != {"message", "type", "param", "code"}:
        return f"not in the error form: {str(content)[:300]}"
    code = _CODES.get(error["code"])
    wrong = {
        "a message that is no text": not isinstance(error["message"], str) or not error["message"],
        "a param that is no text": not isinstance(error["param"], str | None),
        "a code outside the closed set": code is None,
        "a code of another status": code and status and ApiError(code, "").status != status,
    }
    return next((f"{what}: {status} {error}" for what, is_so in wrong.items() if is_so), None)


def _fault_in_stream(body: bytes) -> tuple[Fault, str] | None:
    frames = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
    if not frames or frames[-1].strip() != b"[DONE]":
        return Fault.MALFORMED, f"a stream without its end: {body[-200:]!r}"
    for frame in frames[:-1]:
        try:
            content = json.loads(frame)
        except ValueError:
            return Fault.MALFORMED, f"a frame that is no JSON: {frame[:200]!r}"
        if "error" in content:
            if reason := _why_no_error(content):
                return Fault.MALFORMED, reason
            if ApiError(_CODES[content["error"]["code"]], "").status >= 500:
                return Fault.BREAKS, f"in the stream: {content['error']}"
    return None

"""Every error the HTTP surface can answer, one constructor a failure.

`docs/errors.md` is generated from here: `python -m deployments.openai.errors` prints it.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ErrorCode(StrEnum):
    """The closed set of machine-readable causes."""

    INVALID_JSON = "invalid_json"
    INVALID_PARAMETER = "invalid_parameter"
    UNSUPPORTED_PARAMETER = "unsupported_parameter"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    MODEL_NOT_FOUND = "model_not_found"
    ROUTE_NOT_FOUND = "route_not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    INVALID_API_KEY = "invalid_api_key"
    FORBIDDEN_SCOPE = "forbidden_scope"
    REQUEST_TIMEOUT = "request_timeout"
    REQUEST_TOO_LARGE = "request_too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    RATE_LIMIT_EXCEEDED = "rate_limit_exceeded"
    QUEUE_FULL = "queue_full"
    SERVER_LOADING = "server_loading"
    SERVER_DRAINING = "server_draining"
    PIN_NOT_FOUND = "pin_not_found"
    ENGINE_FAILURE = "engine_failure"
    REQUEST_ABORTED = "request_aborted"
    INTERNAL_ERROR = "internal_error"


@dataclass(frozen=True, slots=True)
class _Kind:
    """What one code always means: status, OpenAI type, cause and cure (for the docs)."""

    status: int
    type: str
    when: str
    cure: str


_BAD = "invalid_request_error"
_KINDS: Mapping[ErrorCode, _Kind] = {
    ErrorCode.INVALID_JSON: _Kind(
        400, _BAD, "The body is not a JSON object.", "Send one JSON object, encoded as UTF-8."
    ),
    ErrorCode.INVALID_PARAMETER: _Kind(
        400,
        _BAD,
        "A field is missing, misspelt, of the wrong type or out of range; `param` names it.",
        "The message says which values work.",
    ),
    ErrorCode.UNSUPPORTED_PARAMETER: _Kind(
        400,
        _BAD,
        "A field of the API that this server does not serve; `param` names it.",
        "Leave the field out.",
    ),
    ErrorCode.CONTEXT_LENGTH_EXCEEDED: _Kind(
        400,
        _BAD,
        "Prompt and `max_tokens` together exceed the model's context.",
        "Shorten the prompt or lower `max_tokens`; the message has the numbers.",
    ),
    ErrorCode.MODEL_NOT_FOUND: _Kind(
        404, _BAD, "`model` is not the model served here.", "Take an id from `GET /v1/models`."
    ),
    ErrorCode.ROUTE_NOT_FOUND: _Kind(404, _BAD, "No such path.", "See the README for the paths."),
    ErrorCode.METHOD_NOT_ALLOWED: _Kind(
        405, _BAD, "The path exists, the method does not.", "The `Allow` header lists the methods."
    ),
    ErrorCode.INVALID_API_KEY: _Kind(
        401,
        _BAD,
        "The server asks for a key, and the request shows none that is in force.",
        "Send `Authorization: Bearer KEY`, with a key from whoever runs the server.",
    ),
    ErrorCode.FORBIDDEN_SCOPE: _Kind(
        403,
        "permission_error",
        "The key is in force and may not do this; the message names the scope.",
        "Use a key that has the scope.",
    ),
    ErrorCode.REQUEST_TIMEOUT: _Kind(
        408,
        "timeout_error",
        "The request ran into its time limit; the message says which one.",
        "Ask for more time in `x-request-timeout-ms`, or for fewer tokens.",
    ),
    ErrorCode.REQUEST_TOO_LARGE: _Kind(
        413, _BAD, "The body is over the size limit.", "Send less; the message has the limit."
    ),
    ErrorCode.UNSUPPORTED_MEDIA_TYPE: _Kind(
        415, _BAD, "The body is not declared as JSON.", "Send `Content-Type: application/json`."
    ),
    ErrorCode.RATE_LIMIT_EXCEEDED: _Kind(
        429,
        "rate_limit_error",
        "The key has used up one of its own limits; the message says which.",
        "Retry after the seconds in `Retry-After`; `x-ratelimit-*` headers say what is left.",
    ),
    ErrorCode.QUEUE_FULL: _Kind(
        429,
        "rate_limit_error",
        "All slots and the queue are taken.",
        "Retry after the seconds in `Retry-After`.",
    ),
    ErrorCode.SERVER_LOADING: _Kind(
        503,
        "service_unavailable_error",
        "No replica has loaded its model yet, or none can; the message says which.",
        "Retry after the seconds in `Retry-After`; `GET /startupz` shows the progress.",
    ),
    ErrorCode.SERVER_DRAINING: _Kind(
        503,
        "service_unavailable_error",
        "An operator lets the server take no new work; what runs goes on to its end.",
        "Retry elsewhere, or after the seconds in `Retry-After`; `DELETE /admin/drain` ends it.",
    ),
    ErrorCode.PIN_NOT_FOUND: _Kind(
        404, _BAD, "No pin of that id holds.", "`GET /policy` lists the pins that do."
    ),
    ErrorCode.ENGINE_FAILURE: _Kind(
        500,
        "server_error",
        "The engine failed on this request, or its replica died and the stream could not resume.",
        "Retry; the server's log has the cause under the request id.",
    ),
    ErrorCode.REQUEST_ABORTED: _Kind(
        503,
        "service_unavailable_error",
        "The server ended the request before it was complete.",
        "Retry: the replica was shutting down, or lost contact with this front end.",
    ),
    ErrorCode.INTERNAL_ERROR: _Kind(
        500, "server_error", "A fault of this server.", "Report it with the request id."
    ),
}


@dataclass(frozen=True, slots=True)
class ApiError:
    """What went wrong, as data: it crosses process boundaries and reads the same there."""

    code: ErrorCode
    message: str
    param: str | None = None
    retry_after_s: float | None = None

    @property
    def status(self) -> int:
        """The HTTP status of this code."""
        return _KINDS[self.code].status

    def as_body(self) -> dict[str, Any]:
        """Return the JSON body in OpenAI's form."""
        return {
            "error": {
                "message": self.message,
                "type": _KINDS[self.code].type,
                "param": self.param,
                "code": self.code.value,
            }
        }


class RefusedError(Exception):
    """Raised at the edge with the error to send."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error)
        self.error = error

    def __str__(self) -> str:
        return self.error.message


def invalid_json(detail: str) -> ApiError:
    """Refuse a body that is not a JSON object."""
    return ApiError(ErrorCode.INVALID_JSON, f"the body must be one JSON object in UTF-8: {detail}")


def invalid_parameter(param: str, message: str) -> ApiError:
    """Refuse a field's value; the message says which would work."""
    return ApiError(ErrorCode.INVALID_PARAMETER, message, param)


def misspelt_parameter(param: str, nearest: str) -> ApiError:
    """Refuse a field that is almost one of ours, so that a slip never becomes a default."""
    return invalid_parameter(param, f"there is no field {param!r}; did you mean {nearest!r}?")


def unsupported_parameter(param: str, reason: str) -> ApiError:
    """Refuse a field of the API that this server does not serve."""
    return ApiError(ErrorCode.UNSUPPORTED_PARAMETER, f"{param} is not supported: {reason}", param)


def prompt_too_long(prompt_tokens: int, limit: int, param: str) -> ApiError:
    """Refuse a prompt that alone leaves no room for one token."""
    return ApiError(
        ErrorCode.CONTEXT_LENGTH_EXCEEDED,
        f"{param} has {prompt_tokens} tokens, this model's context is {limit}; "
        f"send at most {limit - 1}, so that one token can follow",
        param,
    )


def context_too_long(prompt_tokens: int, max_tokens: int, limit: int, param: str) -> ApiError:
    """Refuse a request whose prompt fits but whose output could not."""
    return ApiError(
        ErrorCode.CONTEXT_LENGTH_EXCEEDED,
        f"the prompt has {prompt_tokens} tokens and {param} is {max_tokens}, together over this "
        f"model's context of {limit}; {param} can be {limit - prompt_tokens} at most",
        param,
    )


def model_not_found(asked: str, served: str) -> ApiError:
    """Refuse a model that is not served here."""
    return ApiError(
        ErrorCode.MODEL_NOT_FOUND,
        f"model {asked[:200]!r} is not served here; use {served!r}",
        "model",
    )


def route_not_found(path: str) -> ApiError:
    """Refuse an unknown path."""
    return ApiError(
        ErrorCode.ROUTE_NOT_FOUND,
        f"there is no path {path[:200]!r}; try /v1/chat/completions, /v1/completions or /v1/models",
    )


def method_not_allowed(method: str, path: str, allowed: str) -> ApiError:
    """Refuse a method that a path does not take."""
    return ApiError(
        ErrorCode.METHOD_NOT_ALLOWED, f"{path[:200]!r} does not take {method[:20]}; use {allowed}"
    )


def invalid_api_key(*, is_shown: bool) -> ApiError:
    """Refuse a request without a key, or with one that is not in force."""
    problem = "the API key is not in force here" if is_shown else "no API key was sent"
    return ApiError(
        ErrorCode.INVALID_API_KEY, f"{problem}; send one as 'Authorization: Bearer KEY'"
    )


def forbidden_scope(name: str, scope: str) -> ApiError:
    """Refuse what a key may not do."""
    return ApiError(
        ErrorCode.FORBIDDEN_SCOPE, f"the API key {name!r} lacks the scope {scope!r}; use another"
    )


def rate_limit_exceeded(bound: str, retry_after_s: float) -> ApiError:
    """Refuse a request over one of its key's limits."""
    return ApiError(
        ErrorCode.RATE_LIMIT_EXCEEDED,
        f"{bound}; retry in {max(1, math.ceil(retry_after_s))} s",
        retry_after_s=retry_after_s,
    )


def request_timeout(limit: str) -> ApiError:
    """Say that a request was ended at its time limit."""
    return ApiError(
        ErrorCode.REQUEST_TIMEOUT,
        f"the request was ended at its limit of {limit}; allow more time or ask for less",
    )


def request_too_large(limit_bytes: int) -> ApiError:
    """Refuse a body over the limit."""
    return ApiError(
        ErrorCode.REQUEST_TOO_LARGE, f"the body is over {limit_bytes} bytes; send at most that"
    )


def unsupported_media_type(content_type: str) -> ApiError:
    """Refuse a body that is not declared as JSON."""
    return ApiError(
        ErrorCode.UNSUPPORTED_MEDIA_TYPE,
        f"Content-Type is {content_type[:100]!r}; send application/json",
    )


def queue_full(detail: str, retry_after_s: float) -> ApiError:
    """Refuse a request because every slot and the queue are taken."""
    return ApiError(ErrorCode.QUEUE_FULL, detail, retry_after_s=retry_after_s)


def server_loading(phase: str, percent: int) -> ApiError:
    """Refuse a request because no replica can take one yet."""
    return ApiError(
        ErrorCode.SERVER_LOADING,
        f"the model is loading: {phase}, {percent} percent; GET /startupz shows the progress",
        retry_after_s=2.0,
    )


def load_failed(problem: str) -> ApiError:
    """Refuse a request because the model cannot be loaded as configured."""
    return ApiError(
        ErrorCode.SERVER_LOADING,
        f"no engine could load its model: {problem}",
        retry_after_s=10.0,
    )


def server_draining() -> ApiError:
    """Refuse a request because an operator takes the server out of service."""
    return ApiError(
        ErrorCode.SERVER_DRAINING,
        "the server takes no new work, for an operator drains it; retry elsewhere",
        retry_after_s=10.0,
    )


def pin_not_found(pin_id: str, known: Sequence[str]) -> ApiError:
    """Refuse to lift a pin that does not hold."""
    listed = ", ".join(known[:16]) or "none"
    return ApiError(
        ErrorCode.PIN_NOT_FOUND,
        f"there is no pin {pin_id[:64]!a}; those that hold are: {listed}",
    )


def engine_failure(detail: str) -> ApiError:
    """Say that the engine or its replica failed under a request."""
    return ApiError(ErrorCode.ENGINE_FAILURE, detail)


def request_aborted() -> ApiError:
    """Say that the server, not the client, ended the request early."""
    return ApiError(
        ErrorCode.REQUEST_ABORTED,
        "the server ended this request before it was complete; retry it",
        retry_after_s=1.0,
    )


def internal_error(request_id: str) -> ApiError:
    """Say that this server is at fault, without saying how to a stranger."""
    return ApiError(
        ErrorCode.INTERNAL_ERROR,
        f"the server failed on this request; its log has the cause under {request_id}",
    )


def render_documentation() -> str:
    """Return `docs/errors.md`: one row a code."""
    lines = [
        "# Errors",
        "",
        'Every error has the body `{"error": {"message", "type", "param", "code"}}`. After the',
        "first byte of a stream the status is already 200: the error then comes as one `data:`",
        "frame of the same form, followed by `data: [DONE]`. `code` is stable; `message` is for",
        "people and names the value and what would work.",
        "",
        "Generated by `python -m deployments.openai.errors > docs/errors.md`.",
        "",
        "| code | status | type | when | what to do |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{code.value}` | {kind.status} | `{kind.type}` | {kind.when} | {kind.cure} |"
        for code, kind in _KINDS.items()
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render_documentation())

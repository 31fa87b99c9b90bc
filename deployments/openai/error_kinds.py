"""The closed set of errors: what each code always means.

`docs/errors.md` is generated from here: `python -m deployments.openai.error_kinds` prints it.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


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
    OUT_OF_MEMORY = "out_of_memory"
    ENGINE_FAILURE = "engine_failure"
    REQUEST_ABORTED = "request_aborted"
    INTERNAL_ERROR = "internal_error"


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """What one code always means: status, OpenAI type, cause and cure (for the docs)."""

    status: int
    type: str
    when: str
    cure: str


_BAD = "invalid_request_error"
KINDS: Mapping[ErrorCode, ErrorKind] = {
    ErrorCode.INVALID_JSON: ErrorKind(
        400, _BAD, "The body is not a JSON object.", "Send one JSON object, encoded as UTF-8."
    ),
    ErrorCode.INVALID_PARAMETER: ErrorKind(
        400,
        _BAD,
        "A field is missing, misspelt, of the wrong type or out of range; `param` names it.",
        "The message says which values work.",
    ),
    ErrorCode.UNSUPPORTED_PARAMETER: ErrorKind(
        400,
        _BAD,
        "A field of the API that this server does not serve; `param` names it.",
        "Leave the field out.",
    ),
    ErrorCode.CONTEXT_LENGTH_EXCEEDED: ErrorKind(
        400,
        _BAD,
        "Prompt and `max_tokens` together exceed the model's context.",
        "Shorten the prompt or lower `max_tokens`; the message has the numbers.",
    ),
    ErrorCode.MODEL_NOT_FOUND: ErrorKind(
        404, _BAD, "`model` is not the model served here.", "Take an id from `GET /v1/models`."
    ),
    ErrorCode.ROUTE_NOT_FOUND: ErrorKind(
        404, _BAD, "No such path.", "See the README for the paths."
    ),
    ErrorCode.METHOD_NOT_ALLOWED: ErrorKind(
        405, _BAD, "The path exists, the method does not.", "The `Allow` header lists the methods."
    ),
    ErrorCode.INVALID_API_KEY: ErrorKind(
        401,
        _BAD,
        "The server asks for a key, and the request shows none that is in force.",
        "Send `Authorization: Bearer KEY`, with a key from whoever runs the server.",
    ),
    ErrorCode.FORBIDDEN_SCOPE: ErrorKind(
        403,
        "permission_error",
        "The key is in force and may not do this; the message names the scope.",
        "Use a key that has the scope.",
    ),
    ErrorCode.REQUEST_TIMEOUT: ErrorKind(
        408,
        "timeout_error",
        "The request ran into its time limit; the message says which one.",
        "Ask for more time in `x-request-timeout-ms`, or for fewer tokens.",
    ),
    ErrorCode.REQUEST_TOO_LARGE: ErrorKind(
        413, _BAD, "The body is over the size limit.", "Send less; the message has the limit."
    ),
    ErrorCode.UNSUPPORTED_MEDIA_TYPE: ErrorKind(
        415, _BAD, "The body is not declared as JSON.", "Send `Content-Type: application/json`."
    ),
    ErrorCode.RATE_LIMIT_EXCEEDED: ErrorKind(
        429,
        "rate_limit_error",
        "The key has used up one of its own limits; the message says which.",
        "Retry after the seconds in `Retry-After`; `x-ratelimit-*` headers say what is left.",
    ),
    ErrorCode.QUEUE_FULL: ErrorKind(
        429,
        "rate_limit_error",
        "All slots and the queue are taken.",
        "Retry after the seconds in `Retry-After`.",
    ),
    ErrorCode.SERVER_LOADING: ErrorKind(
        503,
        "service_unavailable_error",
        "No replica has loaded its model yet, or none can; the message says which.",
        "Retry after the seconds in `Retry-After`; `GET /startupz` shows the progress.",
    ),
    ErrorCode.SERVER_DRAINING: ErrorKind(
        503,
        "service_unavailable_error",
        "An operator lets the server take no new work; what runs goes on to its end.",
        "Retry elsewhere, or after the seconds in `Retry-After`; `DELETE /admin/drain` ends it.",
    ),
    ErrorCode.PIN_NOT_FOUND: ErrorKind(
        404, _BAD, "No pin of that id holds.", "`GET /policy` lists the pins that do."
    ),
    ErrorCode.OUT_OF_MEMORY: ErrorKind(
        503,
        "service_unavailable_error",
        "The device had no memory left for the step that the request was in.",
        "Retry, or send a shorter request; `GET /admin/memory` shows who holds the memory.",
    ),
    ErrorCode.ENGINE_FAILURE: ErrorKind(
        500,
        "server_error",
        "The engine failed on this request, or its replica died and the stream could not resume.",
        "Retry; the server's log has the cause under the request id.",
    ),
    ErrorCode.REQUEST_ABORTED: ErrorKind(
        503,
        "service_unavailable_error",
        "The server ended the request before it was complete.",
        "Retry: the replica was shutting down, or lost contact with this front end.",
    ),
    ErrorCode.INTERNAL_ERROR: ErrorKind(
        500, "server_error", "A fault of this server.", "Report it with the request id."
    ),
}


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
        "Generated by `python -m deployments.openai.error_kinds > docs/errors.md`.",
        "",
        "| code | status | type | when | what to do |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{code.value}` | {kind.status} | `{kind.type}` | {kind.when} | {kind.cure} |"
        for code, kind in KINDS.items()
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render_documentation())

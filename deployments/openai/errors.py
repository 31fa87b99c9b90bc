"""Every error the HTTP surface can answer, one constructor a failure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deployments.openai.error_kinds import KINDS, ErrorCode
from dflash.errors import OUT_OF_MEMORY


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
        return KINDS[self.code].status

    def as_body(self) -> dict[str, Any]:
        """Return the JSON body in OpenAI's form."""
        return {
            "error": {
                "message": self.message,
                "type": KINDS[self.code].type,
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


def out_of_memory() -> ApiError:
    """Say that the device had no memory left under a request."""
    return ApiError(ErrorCode.OUT_OF_MEMORY, OUT_OF_MEMORY, retry_after_s=2.0)


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

"""One error as one HTTP answer."""

import math
from collections.abc import Mapping

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import Scope

from deployments.openai.errors import ApiError
from deployments.request_journal import RequestJournal


def error_response(
    scope: Scope, error: ApiError, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return the answer that says what went wrong, in OpenAI's form, and take it down.

    Args:
        scope: Of the request.
        error: What.
        headers: Besides the usual ones.
    """
    note_failure(scope, error)
    answer = JSONResponse(error.as_body(), status_code=error.status, headers=dict(headers or {}))
    if error.retry_after_s is not None:
        answer.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    return answer


def note_failure(scope: Scope, error: ApiError) -> None:
    """Enter into a request's journal how it ended."""
    RequestJournal.of(HTTPConnection(scope)).fail(error)

"""`GET /openapi.json`: every route, what it reads, and every error that it can answer.

The routes are the app's own, so that none is missing; bodies are the models that check them.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from deployments.guard.scopes import scope_for
from deployments.openai.errors import ApiError, ErrorCode
from deployments.openai.schemas import ChatBody, CompletionBody
from deployments.openai.tokenization import DetokenizeBody, TokenizeBody
from deployments.operators.pin_request import PinRequest
from deployments.version import version_body
from policy.reasons import Reason

_PATH = "/openapi.json"
_REF = "#/components/schemas/{model}"
BODIES: Mapping[str, type[Any]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
    "/policy/pins": PinRequest,
}
"""The model of what is sent to a path."""
_TEXT: Mapping[str, Any] = {"type": "string"}
_COUNT: Mapping[str, Any] = {"type": "integer", "minimum": 1, "maximum": 1000}
_QUERIES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "/policy/decisions": {
        "since": _TEXT,
        "replica": _TEXT,
        "reason": {"type": "string", "enum": [str(reason) for reason in Reason]},
        "limit": _COUNT,
    },
    "/policy/explain": {"replica": _TEXT},
    "/policy/signals": {
        "replica": _TEXT,
        "format": {"type": "string", "enum": ["jsonl"]},
        "limit": _COUNT,
    },
}
_STREAMED = frozenset({"/v1/chat/completions", "/v1/completions"})
# Of a body, so not of a path that reads none.
_OF_BODIES = frozenset(
    {
        ErrorCode.INVALID_JSON,
        ErrorCode.REQUEST_TOO_LARGE,
        ErrorCode.UNSUPPORTED_MEDIA_TYPE,
        ErrorCode.CONTEXT_LENGTH_EXCEEDED,
        ErrorCode.QUEUE_FULL,
    }
)


def add_openapi_route(app: FastAPI) -> None:
    """Add the document of all routes that the app has when it is first asked for."""
    written: list[bytes] = []

    @app.get(_PATH)
    async def show_openapi() -> Response:
        if not written:
            written.append(json.dumps(openapi_document(app)).encode())
        return Response(written[0], media_type="application/json")


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the document of an app's routes."""
    document = get_openapi(title=app.title, version=version_body()["version"], routes=app.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    # FastAPI's own form of refusals, which is not ours.
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Error"] = _error_schema()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _complete(operation, method.upper(), path, schemas)
    return document


def _complete(operation: dict[str, Any], method: str, path: str, schemas: dict[str, Any]) -> None:
    body = BODIES.get(path) if method == "POST" else None
    if body is not None:
        schema = TypeAdapter(body).json_schema(ref_template=_REF)
        schemas |= schema.pop("$defs", {})
        schemas[body.__name__] = schema
        content = {"application/json": {"schema": {"$ref": _REF.format(model=body.__name__)}}}
        operation["requestBody"] = {"required": True, "content": content}
    for name, schema in _QUERIES.get(path, {}).items():
        parameter = {"name": name, "in": "query", "required": False, "schema": schema}
        operation.setdefault("parameters", []).append(parameter)
    if (scope := scope_for(method, path)) is not None:
        operation["security"] = [{"key": []}]
        operation["description"] = f"{operation.get('description', '')}\n\nScope: {scope}.".strip()
    responses = operation["responses"]
    responses.pop("422", None)
    if path in _STREAMED:
        responses["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    for status, codes in _codes_by_status(reads_body=body is not None):
        described = ", ".join(f"`{code}`" for code in codes)
        content = {"application/json": {"schema": {"$ref": _REF.format(model="Error")}}}
        responses[status] = {"description": described, "content": content}


def _codes_by_status(*, reads_body: bool) -> Iterator[tuple[str, list[ErrorCode]]]:
    codes = [code for code in ErrorCode if reads_body or code not in _OF_BODIES]
    for status in sorted({ApiError(code, "").status for code in codes}):
        yield str(status), [code for code in codes if ApiError(code, "").status == status]


def _error_schema() -> dict[str, Any]:
    types = sorted({ApiError(code, "").as_body()["error"]["type"] for code in ErrorCode})
    fields: dict[str, Any] = {
        "message": {"type": "string"},
        "type": {"type": "string", "enum": types},
        "param": {"type": ["string", "null"]},
        "code": {"type": "string", "enum": [code.value for code in ErrorCode]},
    }
    error = {"type": "object", "properties": fields, "required": [*fields]}
    return {"type": "object", "properties": {"error": error}, "required": ["error"]}

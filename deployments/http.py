"""The HTTP surface: routes, probes, and errors in OpenAI's form for everything."""

import logging
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from deployments.error_response import error_response
from deployments.gateway import Gateway
from deployments.guard.auth import may_see_details
from deployments.guard.guard import Guard
from deployments.guard.request_ids import id_headers, request_id_of
from deployments.openai import errors
from deployments.openai.errors import RefusedError
from deployments.openai.models import model_body, model_list_body
from deployments.openapi import add_openapi_route
from deployments.operators.admin_routes import add_admin_routes
from deployments.operators.policy_routes import add_policy_routes
from deployments.operators.ready_body import ready_details
from deployments.operators.status_routes import add_status_routes, status_page
from deployments.telemetry.front import TelemetryFront
from deployments.telemetry.ingress import IngressTelemetry
from deployments.telemetry.process import ingress_telemetry
from deployments.telemetry.routes import add_metrics_route
from deployments.tokenize_routes import add_tokenize_routes
from deployments.version import version_body
from deployments.watch import EngineWatch

# What proxies log for a client that left; nobody receives it.
_CLIENT_CLOSED_REQUEST = 499

logger = logging.getLogger(__name__)


# Its spans and metrics are ours: the framework's own would be a second set under other names.
_NO_SECOND_TELEMETRY = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}


def create_app(
    gateway: Gateway,
    background: AbstractAsyncContextManager[None] | None = None,
    guard: Guard | None = None,
    telemetry: IngressTelemetry | None = None,
) -> FastAPI:
    """Return the app.

    Args:
        gateway: What answers.
        background: Entered when the app's event loop starts, left when it stops.
        guard: What every request has to pass first; by default it asks nobody for a key.
        telemetry: Told of each request.
    """
    guard = guard or Guard()
    telemetry = telemetry or ingress_telemetry(gateway.model_name, "")
    lifespan = None if background is None else (lambda _app: background)
    # No schema of FastAPI's: bodies are read and checked by our own models, not by parameters.
    app = FastAPI(
        title="dflash-serve",
        openapi_url=None,
        lifespan=lifespan,
        telemetry=_NO_SECOND_TELEMETRY,  # pyright: ignore[reportArgumentType]
    )
    app.add_api_route("/v1/chat/completions", gateway.chat, methods=["POST"])
    app.add_api_route("/v1/completions", gateway.completions, methods=["POST"])
    add_tokenize_routes(app, gateway)
    _add_model_routes(app, gateway)
    _add_probes(app, gateway.watch, guard)
    add_policy_routes(app, gateway.watch, gateway.model_name)
    add_admin_routes(app, gateway.watch)
    add_status_routes(app)
    add_metrics_route(app, gateway.model_name, telemetry, gateway.watch)
    add_openapi_route(app)
    guard.stand_before(app, {"/status": status_page(401)})
    # Outside of all: what is refused leaves a record, too.
    app.add_middleware(TelemetryFront, telemetry=telemetry)
    app.add_exception_handler(RefusedError, _on_refused)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientDisconnect, _on_client_left)
    app.add_exception_handler(Exception, _on_fault)
    return app


def _add_model_routes(app: FastAPI, gateway: Gateway) -> None:
    def entry() -> dict[str, Any]:
        model = gateway.require_model()
        return model_body(gateway.model_name, model.loaded_at_s, model.card)

    @app.get("/v1/models")
    async def list_models() -> JSONResponse:
        return JSONResponse(model_list_body(entry()))

    @app.get("/v1/models/{model_id:path}")
    async def show_model(model_id: str) -> JSONResponse:
        if model_id != gateway.model_name:
            raise RefusedError(errors.model_not_found(model_id, gateway.model_name))
        return JSONResponse(entry())


def _add_probes(app: FastAPI, watch: EngineWatch, guard: Guard) -> None:
    @app.get("/livez")
    async def is_live() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @app.get("/readyz")
    @app.get("/health")
    async def is_ready(request: Request) -> JSONResponse:
        stranger_reason = guard.why_not_ready()
        reason = watch.why_not_ready() or stranger_reason
        body: dict[str, Any] = {"ready": reason is None}
        if may_see_details(request.scope):
            body["reason"] = reason
            body["keys_problem"] = guard.keys_problem
            body |= ready_details(watch)
        elif stranger_reason is not None:
            body["reason"] = stranger_reason
        return JSONResponse(body, status_code=200 if reason is None else 503)

    @app.get("/startupz")
    async def is_started(request: Request) -> JSONResponse:
        progress = watch.progress()
        is_loaded = watch.model is not None
        body = {
            "started": is_loaded,
            "phase": "ready" if is_loaded else progress.phase,
            "percent": 100 if is_loaded else int(progress.fraction * 100),
            "seconds": round(progress.elapsed_s, 1),
            "problem": None if is_loaded else progress.problem,
        }
        if body["problem"] is not None and not may_see_details(request.scope):
            body["problem"] = "the model cannot be loaded; ask with a key that may see the status"
        return JSONResponse(body, status_code=200 if is_loaded else 503)

    @app.get("/version")
    async def show_version() -> JSONResponse:
        return JSONResponse(version_body())


def _on_refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, RefusedError):
        raise error
    return error_response(request.scope, error.error)


def _on_http_exception(request: Request, error: Exception) -> Response:
    """Answer what the router refuses by itself: unknown paths and methods."""
    if not isinstance(error, HTTPException):
        raise error
    path = request.url.path
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another")
        refusal = errors.method_not_allowed(request.method, path, allowed)
        return error_response(request.scope, refusal, {"Allow": allowed})
    return error_response(request.scope, errors.route_not_found(path))


def _on_client_left(_request: Request, _error: Exception) -> Response:
    """End a request whose client left during its upload: no fault of this server."""
    return Response(status_code=_CLIENT_CLOSED_REQUEST)


def _on_fault(request: Request, error: Exception) -> Response:
    fault_id = request_id_of(request.scope)
    logger.error("%s failed, reported as %s", request.url.path, fault_id, exc_info=error)
    # It is sent from outside of everything that stands before the routes.
    return error_response(request.scope, errors.internal_error(fault_id), id_headers(request.scope))

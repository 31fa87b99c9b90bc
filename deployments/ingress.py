"""The HTTP front of the application as a Serve deployment."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from deployments.client import HandleClient
from deployments.gateway import Gateway
from deployments.guard.guard import Guard
from deployments.guard.settings import GuardSettings
from deployments.http import create_app
from deployments.logs import join_serve_log
from deployments.room import name_of_this_replica
from deployments.telemetry.process import ingress_telemetry
from deployments.watch import EngineWatch
from deployments.wire import LoadReport

INGRESS_NAME = "Ingress"
_REPORT_TIMEOUT_S = 2.0


@serve.ingress()
class Ingress:
    """Answers HTTP for the engines behind a handle."""

    def __init__(
        self,
        engines: DeploymentHandle,
        model_name: str,
        guarding: GuardSettings | None = None,
        response_metrics: bool = False,
    ) -> None:
        join_serve_log()
        self._guard = Guard(guarding, is_in_serve=True)
        client = HandleClient(engines)
        self._watch = EngineWatch(client)
        self._gateway = Gateway(client, self._watch, model_name, response_metrics=response_metrics)
        self._telemetry = ingress_telemetry(model_name, name_of_this_replica())

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Return the app; Serve asks for it after the constructor."""
        background = running(self._watch.run(), self._guard.run(), self._telemetry.run())
        return create_app(self._gateway, background, self._guard, self._telemetry)

    def note_load(self, report: LoadReport) -> None:
        """Take the progress of a replica that loads."""
        self._watch.note(report)


class ReportToIngresses:
    """Sends a replica's loading progress to every ingress of its application."""

    async def __call__(self, report: LoadReport) -> None:
        """Send one report; gives up soon, for the next one is newer."""
        app_name = serve.get_replica_context().app_name
        ingresses = serve.get_deployment_handle(INGRESS_NAME, app_name)
        async with asyncio.timeout(_REPORT_TIMEOUT_S):
            await ingresses.broadcast("note_load", report).results_async()


@asynccontextmanager
async def running(*coroutines: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run coroutines beside the body, and cancel them after it."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

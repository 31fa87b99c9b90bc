"""`GET /metrics`."""

from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse

from deployments.telemetry.engine_samples import engine_samples
from deployments.telemetry.exposition import CONTENT_TYPE, prometheus_text
from deployments.telemetry.ingress import IngressTelemetry
from deployments.telemetry.samples import joined
from deployments.watch import EngineWatch


def add_metrics_route(
    app: FastAPI, model: str, telemetry: IngressTelemetry, watch: EngineWatch
) -> None:
    """Let an app answer with the ingress's metrics and those of all engines that it hears of."""

    @app.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics() -> Response:
        samples = joined(telemetry.samples(), engine_samples(model, watch.statuses))
        return Response(prometheus_text(samples), media_type=CONTENT_TYPE)

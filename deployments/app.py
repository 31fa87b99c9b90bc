"""The Serve application: `import_path: deployments.app:build`."""

from collections.abc import Awaitable, Callable
from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve.schema import LoggingConfig

from deployments.config import ServeArgs, serve_args_from
from deployments.ingress import INGRESS_NAME, Ingress, ReportToIngresses
from deployments.replica import EngineOpener, EngineReplica, OnOutputs, OnProgress, RunningEngine
from deployments.wire import LoadReport
from dflash.config import EngineConfig

ENGINE_NAME = "Engine"


def build(args: dict[str, Any]) -> Application:
    """Return the application that `serve_config.yaml` describes under `args`.

    Raises:
        ConfigError: A key is unknown or a value cannot work; all problems are in the message.
    """
    return assemble(serve_args_from(args), open_engine, ReportToIngresses())


def open_engine(
    config: EngineConfig, on_progress: OnProgress, on_outputs: OnOutputs
) -> RunningEngine:
    """Open the real engine; only a replica imports torch."""
    from deployments.engine_start import open_engine

    return open_engine(config, on_progress, on_outputs)


def assemble(
    args: ServeArgs,
    opener: EngineOpener,
    report: Callable[[LoadReport], Awaitable[None]],
) -> Application:
    """Join an ingress to engine replicas.

    Sizes, scaling and limits of both are in `serve_config.yaml`, not here.

    Args:
        args: The settings.
        opener: Loads an engine in each replica.
        report: How a loading replica reports.
    """
    # An ingress checks in with every engine each second; that is no line of a log.
    quiet = LoggingConfig(enable_access_log=False)
    engine = serve.deployment(name=ENGINE_NAME, logging_config=quiet)(EngineReplica)
    engines = engine.bind(args.engine, opener, report)
    return serve.deployment(name=INGRESS_NAME)(Ingress).bind(
        engines, args.served_name, args.guarding
    )

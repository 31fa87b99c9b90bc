"""The Serve application: `import_path: deployments.app:build`."""

from collections.abc import Awaitable, Callable
from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve.schema import LoggingConfig

from deployments.config import ServeArgs, serve_args_from
from deployments.ingress import INGRESS_NAME, Ingress, ReportToIngresses
from deployments.llm_configs import LLM_CONFIGS, DeploymentOptions, moved_from
from deployments.replica import EngineOpener, EngineReplica, OnOutputs, OnProgress, RunningEngine
from deployments.wire import LoadReport
from dflash.config import EngineConfig

ENGINE_NAME = "Engine"


def build(args: dict[str, Any]) -> Application:
    """Return the application that `serve_config.yaml` describes under `args`.

    They are in our form, or in that of Ray Serve LLM (`llm_configs`).

    Raises:
        ConfigError: A key is unknown or a value cannot work; all problems are in the message.
    """
    if LLM_CONFIGS in args:
        moved = moved_from(args)
        return assemble(moved.settings(), open_engine, ReportToIngresses(), moved.options)
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
    options: DeploymentOptions | None = None,
) -> Application:
    """Join an ingress to engine replicas.

    Sizes, scaling and limits of both are in the configuration, not here.

    Args:
        args: The settings.
        opener: Loads an engine in each replica.
        report: How a loading replica reports.
        options: Of the two deployments; the configuration file's own go over them.
    """
    # An ingress checks in with every engine each second; that is no line of a log.
    quiet = LoggingConfig(encoding="JSON", enable_access_log=False)
    told = LoggingConfig(encoding="JSON")
    options = options or DeploymentOptions()
    of_engine = {"name": ENGINE_NAME, "logging_config": quiet, **options.engine}
    engine = serve.deployment(**of_engine)(EngineReplica)
    engines = engine.bind(args.engine, opener, report, args.served_name)
    of_ingress = {"name": INGRESS_NAME, "logging_config": told, **options.ingress}
    ingress = serve.deployment(**of_ingress)(Ingress)
    return ingress.bind(engines, args.served_name, args.guarding, args.response_metrics)

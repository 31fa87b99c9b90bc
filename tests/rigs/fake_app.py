"""The shipped application over the scripted engine: `import_path: tests.rigs.fake_app:build`."""

import time
from functools import partial
from typing import Any

from ray.serve import Application

from deployments.app import assemble
from deployments.config import ServeArgs
from deployments.ingress import ReportToIngresses
from deployments.replica import OnOutputs, OnProgress, RunningEngine
from dflash.config import EngineConfig
from dflash.errors import CheckpointError
from tests.rigs.fake_engine import FakeLoop, open_fake

MODEL = "fake"


def build(args: dict[str, Any]) -> Application:
    """Return the application; ``load_s`` and ``step_s`` make the fake as slow as a real one."""
    slowness = {key: value for key, value in args.items() if key != "keys_file"}
    settings = ServeArgs(model_name=MODEL, keys_file=args.get("keys_file"))
    return assemble(settings, partial(open_slowly, **slowness), ReportToIngresses())


def open_slowly(
    config: EngineConfig,
    on_progress: OnProgress,
    on_outputs: OnOutputs,
    *,
    load_s: float = 0.0,
    step_s: float = 0.0,
    tokens_per_step: int = 1,
    problem: str | None = None,
) -> RunningEngine:
    """Load for a while, reporting, then open the fake engine, or fail with the problem."""
    for tenth in range(10):
        on_progress("pretending", tenth / 10)
        time.sleep(load_s / 10)
    if problem is not None:
        raise CheckpointError(problem)
    running = open_fake(config, on_progress, on_outputs)
    loop = running.loop
    if isinstance(loop, FakeLoop):
        loop.step_s, loop.tokens_per_step = step_s, tokens_per_step
    return running

"""Start an engine: load the models, measure its steps where the policy needs them, run it."""

import logging
import os
import platform
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from deployments.device_probe import probe_of
from deployments.memory_watch import MemoryWatch
from deployments.operators.memory_desk import MemoryDesk
from deployments.policy_desk import Holdings, PolicyDesk
from deployments.replica import OnOutputs, OnProgress, RunningEngine
from deployments.room import name_of_this_replica
from deployments.step_times import step_times_of
from dflash.cache_folder import cache_dir_from
from dflash.config import AUTO_LENGTH, EngineConfig
from dflash.engine import Engine
from dflash.errors import ProfileError
from dflash.kernels.build import kernels_fingerprint
from dflash.load import LoadedModels, engine_of, load_models
from dflash.loop import EngineLoop
from dflash.plan import FixedPlanner

_MEASURING = "measuring step times"
_SHARE_OF_LOADING = 0.6
_logger = logging.getLogger(__name__)


def open_engine(
    config: EngineConfig, on_progress: OnProgress, on_outputs: OnOutputs
) -> RunningEngine:
    """Load the configured model and start its engine.

    Raises:
        EngineError: The configuration, the checkpoint or the cache folder cannot be used.
    """
    models = load_models(config, lambda phase, share: on_progress(phase, _SHARE_OF_LOADING * share))
    engine = engine_of(models, config)
    if engine.grammars is not None and isinstance(engine.grammars.vocabulary, str):
        _logger.warning("no structured output with this model: %s", engine.grammars.vocabulary)
    policy = None
    if config.speculation.draft_length == AUTO_LENGTH and models.drafters:
        policy = _policy_of(engine, models, config, on_progress)
    on_progress("ready", 1.0)
    loop = EngineLoop(engine, on_outputs)
    loop.start()
    return RunningEngine(engine, loop, policy, _memory_of(models, policy))


def _memory_of(models: LoadedModels, policy: PolicyDesk | None) -> MemoryDesk:
    """Return what knows the memory; a policy watches the device anyway."""
    if policy is not None:
        return MemoryDesk(models.plan, models.drafters, lambda: policy.reading)
    watch = MemoryWatch(probe_of(torch.device("cpu")))
    watch.start()
    return MemoryDesk(models.plan, models.drafters, lambda: watch.latest, watch.stop)


def _policy_of(
    engine: Engine, models: LoadedModels, config: EngineConfig, on_progress: OnProgress
) -> PolicyDesk | None:
    """Give the engine a policy; without step times it decodes plainly, and says why."""
    folder = cache_dir_from(config.cache_dir) / "step-times"

    def report(share: float) -> None:
        on_progress(_MEASURING, _SHARE_OF_LOADING + (1.0 - _SHARE_OF_LOADING) * share)

    report(0.0)
    probe = probe_of(torch.device("cpu"))
    try:
        times = step_times_of(
            engine, _key(models, config), folder, report, lambda: probe.read().clock_mhz
        )
    except ProfileError as error:
        _logger.error("no policy: %s", error)
        detail = f"decodes plainly, for step times could not be measured: {error}"
        engine.speculation = replace(models.speculation, draft_length=0, detail=detail)
        return None
    finally:
        engine.set_planner(FixedPlanner())
    holdings = Holdings(
        sum(drafter.context_bytes for drafter in models.drafters),
        sum(drafter.weights_bytes for drafter in models.drafters),
    )
    record = config.speculation.record_dir
    desk = PolicyDesk(
        times,
        probe,
        name_of_this_replica(),
        holdings,
        Path(record).expanduser() if record else None,
    )
    desk.start()
    engine.set_planner(desk.planner)
    return desk


def _key(models: LoadedModels, config: EngineConfig) -> dict[str, Any]:
    """Return what step times depend on."""
    target = models.target
    return {
        "target": target.fingerprint,
        # A drafter that was trained anew keeps its name and may have other layers.
        "drafters": [
            (asdict(report), drafter.weights_bytes, drafter.context_bytes)
            for report, drafter in zip(models.speculation.drafters, models.drafters, strict=True)
        ],
        "form": target.exactness.form,
        "kernels": kernels_fingerprint(),
        "dtype": str(config.dtype),
        "threads": config.num_threads or len(os.sched_getaffinity(0)),
        "limits": asdict(config.limits),
        "pages": target.runner.facts.num_pages,
        "max_model_len": target.runner.facts.max_model_len,
        "device": _device_name(),
        "version": _version(),
    }


def _device_name() -> str:
    """Return the processor's name as the kernel has it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _version() -> str:
    try:
        return version("dflash-serve")
    except PackageNotFoundError:
        return "unknown"

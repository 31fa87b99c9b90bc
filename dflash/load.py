"""From settings to an engine: open, plan, load, choose the kernels, probe them."""

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from dflash.cache_folder import cache_dir_from
from dflash.config import AUTO_LENGTH, Dtype, EngineConfig, Exactness, SpeculationConfig
from dflash.drafters.choice import (
    ChosenDrafter,
    chosen_drafters,
    reason_to_go_on,
    report_of,
)
from dflash.drafters.held import HeldDrafter
from dflash.drafters.load import Lender, held_drafter
from dflash.engine import Engine
from dflash.errors import CheckpointError, KernelError
from dflash.exactness import ExactnessReport
from dflash.forecast import forecast_of
from dflash.forms import CompiledForm, Form, Parts, TorchForm
from dflash.grammar.compiler import GrammarCompiler
from dflash.kernels.build import native_build
from dflash.kernels.pages import allocate_pages, rotary_table
from dflash.kernels.torch_forms import FixedRows, OneQuery, PackedRows, PaddedRuns
from dflash.machine_memory import memory_of_this_machine
from dflash.memory import MemoryPlan, format_plan
from dflash.models.checkpoint import Checkpoint, open_checkpoint
from dflash.models.config import max_model_len
from dflash.models.registry import program_for
from dflash.plan import PLAIN, Arm, FixedPlanner, constant_plan
from dflash.probe import PROBE_PAGES, PROBE_POSITIONS, first_difference
from dflash.runner import Executor, Runner
from dflash.speculation_report import SpeculationReport
from dflash.target import TargetFacts

_logger = logging.getLogger(__name__)
_DTYPES = {Dtype.BFLOAT16: torch.bfloat16, Dtype.FLOAT32: torch.float32}
OnProgress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class LoadedTarget:
    """A target in memory, with what was found out about it.

    Attributes:
        runner: The target.
        model_folder: Where the checkpoint and its tokenizer lie.
        exactness: What is promised about its numbers.
        fingerprint: Of the checkpoint; a drafter trained for it carries the same.
        lender: What a drafter borrows.
    """

    runner: Runner
    model_folder: Path
    exactness: ExactnessReport
    fingerprint: str
    lender: Lender


@dataclass(frozen=True, slots=True)
class LoadedModels:
    """A target in memory, with its drafters.

    Attributes:
        target: The target.
        drafters: Its drafters; the first drafts as an engine starts.
        speculation: Which drafters these are and how far that one drafts, or why there is none.
        plan: What each component was to hold.
    """

    target: LoadedTarget
    drafters: tuple[HeldDrafter, ...]
    speculation: SpeculationReport
    plan: MemoryPlan


def load_engine(config: EngineConfig, on_progress: OnProgress | None = None) -> Engine:
    """Return an engine ready to step; arguments and errors are those of `load_models`."""
    return engine_of(load_models(config, on_progress), config)


def engine_of(models: LoadedModels, config: EngineConfig) -> Engine:
    """Return an engine of loaded models; where the policy is to plan, it decodes plainly for now.

    Args:
        models: Loaded with the same settings.
        config: The settings.
    """
    target = models.target
    return Engine(
        target.runner,
        config.limits,
        drafters=models.drafters,
        planner=FixedPlanner(constant_plan(_first_arm(models))),
        model_folder=target.model_folder,
        grammars=GrammarCompiler(target.model_folder, target.runner.facts),
        exactness=target.exactness,
        speculation=models.speculation,
        prefix_caching=config.kv_cache.prefix_caching,
    )


def _first_arm(models: LoadedModels) -> Arm:
    length = models.speculation.draft_length
    if length == AUTO_LENGTH or length == 0:
        return PLAIN
    return Arm(models.drafters[0].facts.name, length)


def load_target(config: EngineConfig, on_progress: OnProgress | None = None) -> LoadedTarget:
    """Return a target alone; arguments and errors are those of `load_models`."""
    alone = replace(config, speculation=SpeculationConfig(drafter=None))
    return load_models(alone, on_progress).target


def load_models(config: EngineConfig, on_progress: OnProgress | None = None) -> LoadedModels:
    """Return a target ready to run, with the drafters that the settings name.

    Args:
        config: The settings.
        on_progress: Called with a phase and the fraction of the whole start done, in [0, 1].

    Raises:
        CheckpointError: The model or a drafter cannot be found, read or computed, or a drafter is
            another target's.
        CacheFolderError: The cache folder cannot be used.
        ConfigError: The memory plan does not fit.
        KernelError: ``bitwise`` was asked for and no form on this machine is exact.
    """
    report = on_progress or (lambda _phase, _fraction: None)
    cache_dir = cache_dir_from(config.cache_dir)
    checkpoint = open_checkpoint(
        config.model, cache_dir, lambda phase, fraction: report(phase, 0.5 * fraction)
    )
    report("planning memory", 0.5)
    memory = memory_of_this_machine()
    forecast = forecast_of(config, checkpoint, chosen_drafters(config, checkpoint), memory)
    _logger.info("%s", format_plan(forecast.plan))

    report("loading weights", 0.55)
    torch.set_num_threads(_num_threads(config))
    target = _loaded_target(config, checkpoint, forecast.plan, report)
    _logger.info(
        "exactness %s: %s (%s)",
        target.exactness.mode,
        target.exactness.form,
        target.exactness.detail,
    )
    drafters, speculation = _loaded_drafters(config, forecast.drafters, target, report)
    _logger.info("speculation: %s", speculation.detail)
    report("ready", 1.0)
    return LoadedModels(target, drafters, speculation, forecast.plan)


def _num_threads(config: EngineConfig) -> int:
    return config.num_threads or len(os.sched_getaffinity(0))


def _loaded_drafters(
    config: EngineConfig,
    chosen: tuple[ChosenDrafter, ...] | str,
    target: LoadedTarget,
    report: OnProgress,
) -> tuple[tuple[HeldDrafter, ...], SpeculationReport]:
    loaded, reasons = [], [chosen] if isinstance(chosen, str) else []
    for each in () if isinstance(chosen, str) else chosen:
        report("loading the drafter", 0.95)
        try:
            drafter = held_drafter(each, target.lender, config)
        except (CheckpointError, KernelError) as error:
            reasons.append(reason_to_go_on(config, error))
        else:
            loaded.append((each, drafter))
    if not loaded:
        return (), SpeculationReport(None, 0, f"no drafter: {'; '.join(reasons)}")
    drafters = tuple(drafter for _, drafter in loaded)
    return drafters, report_of(loaded, config.speculation.draft_length)


def _loaded_target(
    config: EngineConfig, checkpoint: Checkpoint, plan: MemoryPlan, report: OnProgress
) -> LoadedTarget:
    program = program_for(checkpoint.config)
    length = max_model_len(checkpoint.config, config.max_model_len)
    dtype = _DTYPES[config.dtype]
    parts = Parts(
        program=program,
        weight=checkpoint.tensor,
        pages=allocate_pages(program.attention, max(plan.num_pages, PROBE_PAGES), dtype),
        rotary=rotary_table(program.attention, max(length, PROBE_POSITIONS)),
    )
    form, executor, exactness = _chosen_form(config, checkpoint, parts, report)
    facts = TargetFacts(
        vocab_size=checkpoint.config.vocab_size,
        max_model_len=length,
        eos_token_ids=checkpoint.config.eos_token_ids,
        page_size=plan.page_size,
        num_pages=plan.num_pages,
        num_layers=checkpoint.config.num_layers,
    )
    lender = Lender(
        config=checkpoint.config,
        fingerprint=checkpoint.fingerprint,
        program=program,
        weight=checkpoint.tensor,
        form=form,
        dtype=dtype,
        num_pages=plan.num_pages,
        max_model_len=length,
    )
    runner = Runner(facts, executor)
    return LoadedTarget(runner, checkpoint.folder, exactness, checkpoint.fingerprint, lender)


def _chosen_form(
    config: EngineConfig, checkpoint: Checkpoint, parts: Parts, report: OnProgress
) -> tuple[Form, Executor, ExactnessReport]:
    """Return the cheapest form that keeps the promise, in a fixed order of preference.

    The order is fixed, never timed: replicas on machines alike choose alike, so that a seeded
    request continues on another replica with the same ids.
    """
    if config.exactness is Exactness.RELAXED:
        form = TorchForm(PackedRows(), PaddedRuns())
        executor = form.executor(parts)
        detail = "asked for by engine.exactness; products and attention round with their batch"
        return form, executor, ExactnessReport(Exactness.RELAXED, executor.form, detail)
    failures = []
    for form, executor in _exact_candidates(parts, _num_threads(config), failures):
        report("probing the kernels", 0.9)
        difference = first_difference(executor, checkpoint.config.vocab_size)
        if difference is None:
            detail = "; ".join(["probed row by row: no bit differs", *failures])
            return form, executor, ExactnessReport(Exactness.BITWISE, executor.form, detail)
        failures.append(f"{executor.form} differs at {difference}")
        _logger.warning("kernels are not exact here: %s", failures[-1])
    raise KernelError(
        f"engine.exactness is bitwise, but no form is exact on this machine: {'; '.join(failures)};"
        " set engine.exactness to relaxed to serve without the promise"
    )


def _exact_candidates(
    parts: Parts, num_threads: int, failures: list[str]
) -> Iterator[tuple[Form, Executor]]:
    compiled = _compiled(parts, num_threads)
    if isinstance(compiled, str):
        failures.append(f"no compiled kernels ({compiled})")
        _logger.warning("serving with torch's kernels, many times slower: %s", compiled)
    else:
        yield compiled
    for linear in (FixedRows(32), FixedRows(8)):
        form = TorchForm(linear, OneQuery())
        yield form, form.executor(parts)


def _compiled(parts: Parts, num_threads: int) -> tuple[Form, Executor] | str:
    """Return the compiled form, or why this model or machine has none."""
    build = native_build()
    if build.library is None:
        return build.why_unavailable
    form = CompiledForm(build.library, num_threads)
    try:
        return form, form.executor(parts)
    except KernelError as error:
        return str(error)

"""From settings to an engine: open, plan, load, choose the kernels, probe them."""

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dflash.cache_folder import cache_dir_from
from dflash.config import Dtype, EngineConfig, Exactness
from dflash.engine import Engine
from dflash.errors import KernelError
from dflash.exactness import ExactnessReport
from dflash.kernels.build import native_build
from dflash.kernels.native import NativeExecutor
from dflash.kernels.pages import KVPages, RotaryTable, allocate_pages, rotary_table
from dflash.kernels.torch_executor import TorchExecutor
from dflash.kernels.torch_forms import FixedRows, OneQuery, PackedRows, PaddedRuns
from dflash.machine_memory import memory_of_this_machine
from dflash.memory import format_plan, plan_memory
from dflash.models.checkpoint import Checkpoint, open_checkpoint
from dflash.models.config import max_model_len
from dflash.models.registry import program_for
from dflash.probe import PROBE_PAGES, PROBE_POSITIONS, first_difference
from dflash.program import Program
from dflash.runner import Executor, Runner
from dflash.target import TargetFacts

_logger = logging.getLogger(__name__)
_DTYPES = {Dtype.BFLOAT16: torch.bfloat16, Dtype.FLOAT32: torch.float32}
OnProgress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class _Parts:
    """What every form of running the model is made from."""

    program: Program
    weight: Callable[[str], Tensor]
    pages: KVPages
    rotary: RotaryTable
    num_threads: int


@dataclass(frozen=True, slots=True)
class LoadedTarget:
    """A target in memory, with what was found out about it.

    Attributes:
        runner: The target.
        model_folder: Where the checkpoint and its tokenizer lie.
        exactness: What is promised about its numbers.
        fingerprint: Of the checkpoint; a drafter trained for it carries the same.
    """

    runner: Runner
    model_folder: Path
    exactness: ExactnessReport
    fingerprint: str


def load_engine(config: EngineConfig, on_progress: OnProgress | None = None) -> Engine:
    """Return an engine ready to step; arguments and errors are those of `load_target`."""
    target = load_target(config, on_progress)
    return Engine(
        target.runner,
        config.limits,
        model_folder=target.model_folder,
        exactness=target.exactness,
        prefix_caching=config.kv_cache.prefix_caching,
    )


def load_target(config: EngineConfig, on_progress: OnProgress | None = None) -> LoadedTarget:
    """Return a target ready to run.

    Args:
        config: The settings.
        on_progress: Called with a phase and the fraction of the whole start done, in [0, 1].

    Raises:
        CheckpointError: The model cannot be found, read or computed.
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
    plan = plan_memory(checkpoint.config, config, memory.total_bytes, memory.used_bytes)
    _logger.info("%s", format_plan(plan))

    report("loading weights", 0.55)
    num_threads = config.num_threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(num_threads)
    program = program_for(checkpoint.config)
    length = max_model_len(checkpoint.config, config.max_model_len)
    parts = _Parts(
        program=program,
        weight=checkpoint.tensor,
        pages=allocate_pages(
            program.attention, max(plan.num_pages, PROBE_PAGES), _DTYPES[config.dtype]
        ),
        rotary=rotary_table(program.attention, max(length, PROBE_POSITIONS)),
        num_threads=num_threads,
    )
    executor, exactness = _chosen_executor(config, checkpoint, parts, report)
    _logger.info("exactness %s: %s (%s)", exactness.mode, exactness.form, exactness.detail)
    facts = TargetFacts(
        vocab_size=checkpoint.config.vocab_size,
        max_model_len=length,
        eos_token_ids=checkpoint.config.eos_token_ids,
        page_size=plan.page_size,
        num_pages=plan.num_pages,
        num_layers=checkpoint.config.num_layers,
    )
    report("ready", 1.0)
    return LoadedTarget(
        Runner(facts, executor), checkpoint.folder, exactness, checkpoint.fingerprint
    )


def _chosen_executor(
    config: EngineConfig, checkpoint: Checkpoint, parts: _Parts, report: OnProgress
) -> tuple[Executor, ExactnessReport]:
    """Return the cheapest form that keeps the promise, in a fixed order of preference.

    The order is fixed, never timed: replicas on machines alike choose alike, so that a seeded
    request continues on another replica with the same ids.
    """
    if config.exactness is Exactness.RELAXED:
        executor = TorchExecutor(
            parts.program, parts.weight, parts.pages, parts.rotary, PackedRows(), PaddedRuns()
        )
        detail = "asked for by engine.exactness; products and attention round with their batch"
        return executor, ExactnessReport(Exactness.RELAXED, executor.form, detail)
    failures = []
    for executor in _exact_candidates(parts, failures):
        report("probing the kernels", 0.9)
        difference = first_difference(executor, checkpoint.config.vocab_size)
        if difference is None:
            detail = "; ".join(["probed row by row: no bit differs", *failures])
            return executor, ExactnessReport(Exactness.BITWISE, executor.form, detail)
        failures.append(f"{executor.form} differs at {difference}")
        _logger.warning("kernels are not exact here: %s", failures[-1])
    raise KernelError(
        f"engine.exactness is bitwise, but no form is exact on this machine: {'; '.join(failures)};"
        " set engine.exactness to relaxed to serve without the promise"
    )


def _exact_candidates(parts: _Parts, failures: list[str]) -> Iterator[Executor]:
    compiled = _compiled(parts)
    if isinstance(compiled, NativeExecutor):
        yield compiled
    else:
        failures.append(f"no compiled kernels ({compiled})")
        _logger.warning("serving with torch's kernels, many times slower: %s", compiled)
    for linear in (FixedRows(32), FixedRows(8)):
        yield TorchExecutor(
            parts.program, parts.weight, parts.pages, parts.rotary, linear, OneQuery()
        )


def _compiled(parts: _Parts) -> NativeExecutor | str:
    """Return the compiled form, or why this model or machine has none."""
    build = native_build()
    if build.library is None:
        return build.why_unavailable
    try:
        return NativeExecutor(
            build.library,
            parts.program,
            parts.weight,
            parts.pages,
            parts.rotary,
            parts.num_threads,
        )
    except KernelError as error:
        return str(error)

"""The target and the drafters that are measured."""

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.rigs.tiny_drafter import TinyDrafter, tiny_drafter_tensors, write_tiny_drafter
from dflash.config import AUTO_DRAFTER, Dtype, EngineConfig, KVCacheConfig, SpeculationConfig
from dflash.drafters.base import Drafter
from dflash.drafters.choice import EMBEDDED_DRAFTER
from dflash.drafters.dflash import DFlashDrafter
from dflash.drafters.load import load_drafter, open_bound_drafter
from dflash.load import LoadedTarget, load_models

_MAX_RUNS = 32


class PairAbsentError(Exception):
    """There is no drafter to measure."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A target with its drafter.

    Attributes:
        target: The target.
        drafter: Its drafter.
        full_head_drafter: One of the same sizes whose head covers the whole vocabulary: its time
            is real, its weights are random. None where the drafter's own head does, and for an MTP
            head.
    """

    target: LoadedTarget
    drafter: Drafter
    full_head_drafter: Drafter | None


def load_pair(dtype: str, num_threads: int | None, folder: str) -> Pair:
    """Load what is to be measured.

    Args:
        dtype: Type of weights, activations and pages.
        num_threads: Threads of the kernels; None takes all CPUs.
        folder: The drafter's folder, or ``auto``.

    Raises:
        PairAbsentError: ``auto``, and no drafter is shipped.
    """
    models = load_models(
        EngineConfig(
            dtype=Dtype(dtype),
            num_threads=num_threads,
            kv_cache=KVCacheConfig(memory_gib=0.75),
            speculation=SpeculationConfig(drafter=folder),
        )
    )
    if models.drafter is None:
        raise PairAbsentError("no drafter is shipped; name one with --drafter FOLDER")
    full_head = None
    if isinstance(models.drafter, DFlashDrafter) and models.drafter.config.is_reduced:
        source = EMBEDDED_DRAFTER if folder == AUTO_DRAFTER else Path(folder)
        full_head = _with_full_head(models.target, source)
    return Pair(models.target, models.drafter, full_head)


def _with_full_head(target: LoadedTarget, source: Path) -> Drafter:
    content = json.loads((source / "config.json").read_text(encoding="utf-8"))
    del content["draft_vocab_size"]
    lender = target.lender
    with TemporaryDirectory() as folder:
        written = write_tiny_drafter(
            Path(folder), TinyDrafter(), lender.config, content, tiny_drafter_tensors(content)
        )
        checkpoint = open_bound_drafter(written, lender.config, lender.fingerprint)
        return load_drafter(checkpoint, lender, _MAX_RUNS)

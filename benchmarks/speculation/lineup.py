"""The target and the drafters that are measured."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.rigs.registered_drafters import REGISTERED, made_up
from benchmarks.rigs.tiny_drafter import TinyDrafter, tiny_drafter_tensors, write_tiny_drafter
from dflash.config import AUTO_DRAFTER, Dtype, EngineConfig, KVCacheConfig, SpeculationConfig
from dflash.drafters.base import Drafter
from dflash.drafters.binding import open_bound_drafter
from dflash.drafters.choice import EMBEDDED_DRAFTERS
from dflash.drafters.config import dflash_config_from_json
from dflash.drafters.dflash import DFlashDrafter
from dflash.drafters.held import HeldDrafter
from dflash.drafters.load import load_drafter
from dflash.load import LoadedTarget, load_models

_MAX_RUNS = 32


class DrafterAbsentError(Exception):
    """There is no drafter to measure."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be measured.

    Attributes:
        dtype: Type of weights, activations and pages.
        num_threads: Threads of the kernels; None takes all CPUs.
        folders: The drafters' folders; none takes those that are shipped.
        names: Only these, in this order; none takes all that are loaded.
        may_make_up: Whether random weights stand for those of them that are not loaded.
        memory_gib: Memory for pages, GiB.
    """

    dtype: str
    num_threads: int | None
    folders: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    may_make_up: bool = False
    memory_gib: float = 0.75


@dataclass(frozen=True, slots=True)
class Lineup:
    """A target with its drafters.

    Attributes:
        target: The target.
        drafters: Its drafters.
        made_up: Names of those with random weights: their time is real, their drafts are noise.
        folders: Where the others lie.
    """

    target: LoadedTarget
    drafters: tuple[Drafter, ...]
    made_up: tuple[str, ...]
    folders: tuple[Path, ...]


def load_lineup(wanted: Wanted) -> Lineup:
    """Load what is to be measured.

    Raises:
        DrafterAbsentError: One is not loaded, and may not be made up.
    """
    models = load_models(
        EngineConfig(
            dtype=Dtype(wanted.dtype),
            num_threads=wanted.num_threads,
            kv_cache=KVCacheConfig(memory_gib=wanted.memory_gib),
            speculation=SpeculationConfig(drafter=wanted.folders or AUTO_DRAFTER),
        )
    )
    loaded = {drafter.facts.name: drafter for drafter in models.drafters}
    names = wanted.names or tuple(loaded)
    absent = tuple(name for name in names if name not in loaded)
    if not names or (absent and not wanted.may_make_up):
        raise DrafterAbsentError(
            f"{', '.join(absent) or 'a drafter'} is not shipped; name one with --drafter FOLDER, "
            "or let --drafters name it and --random-weights make it up"
        )
    return Lineup(
        target=models.target,
        drafters=tuple(loaded.get(name) or made_up(models.target, name) for name in names),
        made_up=absent,
        folders=tuple(map(Path, wanted.folders or EMBEDDED_DRAFTERS)),
    )


def drafter_names(text: str) -> tuple[str, ...]:
    """Return the names of drafters in a comma-separated list.

    Raises:
        ArgumentTypeError: One is none of ours.
    """
    found = tuple(text.split(","))
    for name in found:
        if name not in REGISTERED:
            known = ", ".join(REGISTERED)
            raise argparse.ArgumentTypeError(f"{name!r} is no drafter; there are {known}")
    return found


def full_head_drafter(lineup: Lineup) -> Drafter | None:
    """Return a drafter with random weights and a head over the whole vocabulary.

    Else it has the sizes of the lineup's DFlash drafter; None where that is not there, or its
    head is whole itself, and for an MTP head.
    """
    loaded = [
        drafter.present() if isinstance(drafter, HeldDrafter) else drafter
        for drafter in lineup.drafters
    ]
    reduced = [
        drafter.config
        for drafter in loaded
        if isinstance(drafter, DFlashDrafter) and drafter.config.is_reduced
    ]
    for folder in lineup.folders:
        path = folder / "config.json"
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if "dflash_config" in content and dflash_config_from_json(content) in reduced:
            del content["draft_vocab_size"]
            return _made_up_like(content, lineup.target)
    return None


def _made_up_like(content: dict[str, object], target: LoadedTarget) -> Drafter:
    lender = target.lender
    with TemporaryDirectory() as folder:
        written = write_tiny_drafter(
            Path(folder), TinyDrafter(), lender.config, content, tiny_drafter_tensors(content)
        )
        checkpoint = open_bound_drafter(written, lender.config, lender.fingerprint)
        return load_drafter(checkpoint, lender, _MAX_RUNS)

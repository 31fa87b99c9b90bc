"""DFlash drafters as arms: random weights of both versions, and the one that is shipped."""

from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.rigs.draft_arms import DraftArm, full_width, random_widths, toggled
from benchmarks.rigs.served import LIMITS
from benchmarks.rigs.tiny_drafter import TinyDrafter, load_tiny_drafter
from dflash.drafters.base import Drafter
from dflash.load import LoadedModels, LoadedTarget

_V1 = TinyDrafter(version=1)
_V2 = TinyDrafter(version=2, window=64, draft_vocab_size=4096)


def dflash_arms(models: LoadedModels) -> list[DraftArm]:
    """Return an arm of each version with random weights, and two of the loaded drafter's."""
    target, shipped = models.target, models.drafter
    arms = [
        DraftArm("DFlash v1, random", ("drafted",), lambda: made_up(target, _V1), random_widths),
        DraftArm("DFlash 2, random", ("drafted",), lambda: made_up(target, _V2), toggled),
    ]
    if shipped is not None:
        arms += [
            DraftArm("shipped, full width", ("accepted",), lambda: shipped, full_width),
            DraftArm("shipped, toggled", ("accepted", "catch_up"), lambda: shipped, toggled),
        ]
    return arms


def made_up(target: LoadedTarget, kind: TinyDrafter) -> Drafter:
    """Return a drafter with random weights for a loaded target."""
    with TemporaryDirectory() as folder:
        return load_tiny_drafter(Path(folder), kind, target, LIMITS.max_num_seqs)

"""Every drafter there is, with what tests and benchmarks make one up from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.rigs.served import LIMITS
from benchmarks.rigs.tiny_drafter import TinyDrafter, load_tiny_drafter
from benchmarks.rigs.tiny_mtp import TinyMtp
from dflash.drafters.base import Drafter, DrafterFacts, DrafterKind
from dflash.drafters.config_values import MAX_CANDIDATES
from dflash.load import LoadedTarget
from dflash.models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Fixtures:
    """What stands for a drafter where none has been trained.

    Attributes:
        tiny: Returns its sizes for a target, which get random weights.
        script: Facts of a script in its place, on the integer-exact model.
    """

    tiny: Callable[[ModelConfig], TinyDrafter | TinyMtp]
    script: DrafterFacts


def _num_columns(target: ModelConfig) -> int:
    """Return the columns of a reduced head, at least the candidates of a slot."""
    return max(target.vocab_size // 12, MAX_CANDIDATES)


# Contexts of scripts end before the longest requests of the storm do, each elsewhere.
REGISTERED: Mapping[str, Fixtures] = {
    DrafterKind.DFLASH: Fixtures(
        lambda _target: TinyDrafter(version=1), DrafterFacts(DrafterKind.DFLASH, (0,), 7, 250, True)
    ),
    DrafterKind.DFLASH2: Fixtures(
        lambda target: TinyDrafter(version=2, window=64, draft_vocab_size=_num_columns(target)),
        DrafterFacts(DrafterKind.DFLASH2, (0,), 7, 230, True),
    ),
    DrafterKind.MTP: Fixtures(
        lambda target: TinyMtp(window=64, draft_vocab_size=_num_columns(target)),
        DrafterFacts(DrafterKind.MTP, (0,), 4, 270, False),
    ),
}
"""By name; exactness, law and storm serve all of them, alone and together."""


def made_up(target: LoadedTarget, name: str) -> Drafter:
    """Return a registered drafter with random weights for a loaded target."""
    with TemporaryDirectory() as folder:
        return load_tiny_drafter(
            Path(folder), REGISTERED[name].tiny(target.lender.config), target, LIMITS.max_num_seqs
        )

"""Which drafter the settings name, and why there is none where there is none."""

import logging
from dataclasses import dataclass
from pathlib import Path

from dflash.config import AUTO_DRAFTER, EMBEDDED_MODEL, EngineConfig
from dflash.drafters.checkpoint import DrafterCheckpoint
from dflash.drafters.load import open_bound_drafter
from dflash.errors import CheckpointError, EngineError
from dflash.models.checkpoint import Checkpoint
from dflash.models.folder import local_folder
from dflash.models.hub import downloaded, is_hub_id
from dflash.speculation_report import SpeculationReport

EMBEDDED_DRAFTER = Path(__file__).parents[1] / "assets" / f"{EMBEDDED_MODEL}-dflash"
_SETTING = "engine.speculation.drafter"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChosenDrafter:
    """A drafter to load for a target, checked but not yet read.

    Attributes:
        name: The hub id, or the name of its folder.
        checkpoint: The drafter's.
    """

    name: str
    checkpoint: DrafterCheckpoint

    def report(self, draft_length: int) -> SpeculationReport:
        """Return what is said of the drafter once it is loaded.

        Args:
            draft_length: As the settings have it; the drafter's reach bounds it.
        """
        config = self.checkpoint.config
        length = min(draft_length, config.max_draft_length)
        asked = f"engine.speculation.draft_length is {draft_length}"
        if length == 0:
            use = f"loaded, and not used: {asked}"
        elif length < draft_length:
            use = f"{length} draft tokens a request and step: {asked}, over its reach"
        else:
            use = f"{length} draft tokens a request and step"
        detail = f"{self.name}, {config.kind}, {config.reach}; {use}"
        return SpeculationReport(self.name, length, detail)


def chosen_drafter(config: EngineConfig, target: Checkpoint) -> ChosenDrafter | str:
    """Return the drafter to load, or why there is none.

    Args:
        config: The settings.
        target: The target's checkpoint.

    Raises:
        CheckpointError: The settings name a drafter that is not there, is wrong in itself or is
            another target's.
    """
    source = config.speculation.drafter
    if source is None:
        return f"{_SETTING} is null"
    if source == AUTO_DRAFTER and config.model != EMBEDDED_MODEL:
        return f"{_SETTING} is auto, and only {EMBEDDED_MODEL} brings one"
    if source == AUTO_DRAFTER and not EMBEDDED_DRAFTER.is_dir():
        return f"{_SETTING} is auto, and this version brings none for {EMBEDDED_MODEL}"
    name, folder = _name_and_folder(source)
    try:
        return ChosenDrafter(name, open_bound_drafter(folder, target.config, target.fingerprint))
    except CheckpointError as error:
        return reason_to_go_on(config, error)


def reason_to_go_on(config: EngineConfig, error: EngineError) -> str:
    """Return why there is no drafter, where nobody named the one that failed.

    Clients read it, so it names the drafter and not where it lies.

    Raises:
        EngineError: The settings name it: serving without it is not what was asked for.
    """
    if config.speculation.drafter != AUTO_DRAFTER:
        raise error
    _logger.warning("no drafter: %s", error)
    return str(error).replace(str(EMBEDDED_DRAFTER), EMBEDDED_DRAFTER.name)


def _name_and_folder(source: str) -> tuple[str, Path]:
    if source == AUTO_DRAFTER:
        return EMBEDDED_DRAFTER.name, EMBEDDED_DRAFTER
    if folder := local_folder(source, _SETTING, repr(AUTO_DRAFTER)):
        return folder.resolve().name, folder
    if is_hub_id(source):
        return source, downloaded(source, _SETTING)
    raise CheckpointError(
        f"{_SETTING} is {source!r}: no such folder, and not a hub id (organisation/name); name "
        f"one, or take {AUTO_DRAFTER!r}, or null for plain decoding"
    )

"""Which drafter the settings name, if any, and why not."""

import logging
from pathlib import Path

from dflash.config import AUTO_DRAFTER, EMBEDDED_MODEL, EngineConfig
from dflash.drafters.checkpoint import DrafterCheckpoint
from dflash.drafters.load import open_bound_drafter
from dflash.errors import CheckpointError
from dflash.models.checkpoint import Checkpoint
from dflash.models.folder import local_folder
from dflash.models.hub import downloaded, is_hub_id

EMBEDDED_DRAFTER = Path(__file__).parents[1] / "assets" / f"{EMBEDDED_MODEL}-dflash"
_SETTING = "engine.speculation.drafter"
_logger = logging.getLogger(__name__)


def chosen_drafter(config: EngineConfig, target: Checkpoint) -> DrafterCheckpoint | None:
    """Return the drafter to load, checked but not yet read; None, with the reason in the log.

    Args:
        config: The settings.
        target: The target's checkpoint.

    Raises:
        CheckpointError: The settings name a drafter that is not there, is wrong in itself or is
            another target's.
    """
    source = config.speculation.drafter
    if source is None:
        _logger.info("no drafter: %s is null", _SETTING)
        return None
    if source == AUTO_DRAFTER:
        return _embedded(config, target)
    return open_bound_drafter(_folder_of(source), target.config, target.fingerprint)


def _embedded(config: EngineConfig, target: Checkpoint) -> DrafterCheckpoint | None:
    if config.model != EMBEDDED_MODEL:
        _logger.info("no drafter: %s is auto, and only %s brings one", _SETTING, EMBEDDED_MODEL)
        return None
    try:
        return open_bound_drafter(EMBEDDED_DRAFTER, target.config, target.fingerprint)
    except CheckpointError as error:
        _logger.warning("no drafter: %s", error)
        return None


def _folder_of(source: str) -> Path:
    if folder := local_folder(source, _SETTING, repr(AUTO_DRAFTER)):
        return folder
    if is_hub_id(source):
        return downloaded(source, _SETTING)
    raise CheckpointError(
        f"{_SETTING} is {source!r}: no such folder, and not a hub id (organisation/name); name "
        f"one, or take {AUTO_DRAFTER!r}, or null for plain decoding"
    )

"""Which drafters the settings name, and why there is none where there is none."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dflash.config import AUTO_DRAFTER, AUTO_LENGTH, EMBEDDED_MODEL, EngineConfig
from dflash.drafters.binding import open_bound_drafter
from dflash.drafters.checkpoint import DrafterCheckpoint
from dflash.drafters.token_ids import why_other_tokens
from dflash.errors import CheckpointError, EngineError
from dflash.models.checkpoint import Checkpoint
from dflash.models.folder import local_folder
from dflash.models.hub import FromHub, downloaded, is_hub_id
from dflash.speculation_report import DrafterReport, SpeculationReport

if TYPE_CHECKING:
    from dflash.drafters.base import Drafter

_ASSETS = Path(__file__).parents[1] / "assets"
EMBEDDED_DRAFTERS = tuple(_ASSETS / f"{EMBEDDED_MODEL}-{kind}" for kind in ("dflash", "mtp"))
"""Where the embedded model's drafters lie, the one that drafts at first before the others."""
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

    @property
    def described(self) -> str:
        """Its name, what it is, and how far it drafts."""
        config = self.checkpoint.config
        return f"{self.name}, {config.kind}, {config.reach}"


def report_of(
    loaded: Sequence[tuple[ChosenDrafter, "Drafter"]], draft_length: int | Literal["auto"]
) -> SpeculationReport:
    """Return what is said of drafters once they are loaded.

    Args:
        loaded: At least one; the first drafts as the engine starts.
        draft_length: As the settings have it; that drafter's reach bounds it.
    """
    (first, drafter), *others = loaded
    length, use = _length_in_force(drafter, draft_length)
    beside = "".join(f"; beside it {other.described}" for other, _ in others)
    drafters = tuple(
        DrafterReport(chosen.name, each.facts.name, each.facts.max_draft_length)
        for chosen, each in loaded
    )
    return SpeculationReport(first.name, length, f"{first.described}; {use}{beside}", drafters)


def _length_in_force(
    drafter: "Drafter", draft_length: int | Literal["auto"]
) -> tuple[int | Literal["auto"], str]:
    """Return how far a drafter drafts as the engine starts, and the words for it."""
    if draft_length == AUTO_LENGTH:
        return draft_length, "the policy decides who drafts how far"
    length = min(draft_length, drafter.facts.max_draft_length)
    asked = f"engine.speculation.draft_length is {draft_length}"
    if length == 0:
        return length, f"loaded, and not used: {asked}"
    use = f"{length} draft tokens a request and step"
    return length, f"{use}: {asked}, over its reach" if length < draft_length else use


def chosen_drafters(
    config: EngineConfig, target: Checkpoint, from_hub: FromHub = downloaded
) -> tuple[ChosenDrafter, ...] | str:
    """Return the drafters to load, or why there is none.

    Args:
        config: The settings.
        target: The target's checkpoint.
        from_hub: Finds a hub checkpoint's folder.

    Raises:
        CheckpointError: The settings name a drafter that is not there, is wrong in itself or is
            another target's, or two of one kind.
    """
    source = config.speculation.drafter
    if source is None:
        return f"{_SETTING} is null"
    if source == AUTO_DRAFTER and config.model != EMBEDDED_MODEL:
        return f"{_SETTING} is auto, and only {EMBEDDED_MODEL} brings one"
    if source == AUTO_DRAFTER and not any(folder.is_dir() for folder in EMBEDDED_DRAFTERS):
        return f"{_SETTING} is auto, and this version brings none for {EMBEDDED_MODEL}"
    chosen: dict[str, ChosenDrafter] = {}
    reasons = []
    for name, folder in _names_and_folders(source, from_hub):
        try:
            checkpoint = open_bound_drafter(folder, target.config, target.fingerprint)
            _refuse_other_tokens(folder, target.folder)
        except CheckpointError as error:
            reasons.append(reason_to_go_on(config, error))
            continue
        kind = checkpoint.config.kind
        if kind in chosen:
            raise CheckpointError(
                f"{_SETTING} names {chosen[kind].name} and {name}, both {kind}; name one of a kind"
            )
        chosen[kind] = ChosenDrafter(name, checkpoint)
    return tuple(chosen.values()) or "; ".join(reasons)


def _refuse_other_tokens(drafter: Path, target: Path) -> None:
    if reason := why_other_tokens(drafter, target):
        raise CheckpointError(f"{drafter} cannot draft here: {reason}; use a drafter made for it")


def reason_to_go_on(config: EngineConfig, error: EngineError) -> str:
    """Return why a drafter is left out, where nobody named the one that failed.

    Clients read it, so it names the drafter and not where it lies.

    Raises:
        EngineError: The settings name it: serving without it is not what was asked for.
    """
    if config.speculation.drafter != AUTO_DRAFTER:
        raise error
    _logger.warning("a drafter is left out: %s", error)
    reason = str(error)
    for folder in EMBEDDED_DRAFTERS:
        reason = reason.replace(str(folder), folder.name)
    return reason


def _names_and_folders(source: str | tuple[str, ...], from_hub: FromHub) -> list[tuple[str, Path]]:
    if source == AUTO_DRAFTER:
        return [(folder.name, folder) for folder in EMBEDDED_DRAFTERS if folder.is_dir()]
    return [_named(each, from_hub) for each in ((source,) if isinstance(source, str) else source)]


def _named(source: str, from_hub: FromHub) -> tuple[str, Path]:
    if folder := local_folder(source, _SETTING, repr(AUTO_DRAFTER)):
        return folder.resolve().name, folder
    if is_hub_id(source):
        return source, from_hub(source, _SETTING)
    raise CheckpointError(
        f"{_SETTING} is {source!r}: no such folder, and not a hub id (organisation/name); name "
        f"one, or take {AUTO_DRAFTER!r}, or null for plain decoding"
    )

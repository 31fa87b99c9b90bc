"""Checkpoints on the Hugging Face hub: their ids, and a folder that holds one of them."""

import re
from collections.abc import Callable
from pathlib import Path

from dflash.errors import CheckpointError, NotHereError

# The same forms the hub accepts: an organisation or user, then a name.
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# Weights as safetensors, and what the config and the tokenizer need. No pickles, no code.
_WANTED = ["*.safetensors", "*.json", "*.jinja", "tokenizer.model"]
_UNWANTED = ["consolidated*", "original/*"]

FromHub = Callable[[str, str], Path]
"""Finds the folder of a hub id that the named setting asks for."""


def is_hub_id(source: str) -> bool:
    """Return whether the text has the form ``organisation/name``."""
    return _HUB_ID.fullmatch(source) is not None


def downloaded(hub_id: str, setting: str) -> Path:
    """Return the folder of a hub checkpoint, downloading what is not there yet.

    It lies in the hub's own cache (``HF_HOME``), which other programs share.

    Args:
        hub_id: Organisation and name.
        setting: Key of the setting that asks for it.

    Raises:
        CheckpointError: The hub cannot be reached, or has no such checkpoint for this user.
    """
    # Here and not above: most starts read a folder and need none of it.
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=_WANTED, ignore_patterns=_UNWANTED))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"{setting} is {hub_id!r}: no folder of that name is here, and the hub did not "
            "give it; check the spelling and the network (a private model needs HF_TOKEN), or "
            f"download it elsewhere and name its folder. The hub's client says: {reason}"
        ) from error


def already_here(hub_id: str, setting: str) -> Path:
    """Return the folder of a hub checkpoint that was downloaded before; asks no network.

    Args:
        hub_id: Organisation and name.
        setting: Key of the setting that asks for it.

    Raises:
        NotHereError: It was not, or not whole.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=_WANTED, local_files_only=True))
    except LocalEntryNotFoundError as error:
        raise NotHereError(
            f"{setting} is {hub_id!r}, which has not been downloaded to this machine"
        ) from error

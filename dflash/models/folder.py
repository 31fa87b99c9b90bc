"""A checkpoint's folder on this machine, by the text of a setting."""

from pathlib import Path

from dflash.errors import CheckpointError


def local_folder(source: str, setting: str, otherwise: str) -> Path | None:
    """Return the folder that a setting names; None where nothing of that name is here.

    Args:
        source: The setting's value.
        setting: Its key.
        otherwise: What else it can be, for the message.

    Raises:
        CheckpointError: It names a file, or what this user may not read.
    """
    # The empty text is the working folder to the system, and a forgotten setting to a person.
    if not source:
        return None
    try:
        path = Path(source).expanduser()
        if path.is_dir():
            return path
        is_file = path.exists()
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f"{setting} is {source!r}, which cannot be looked up ({error}); name a folder "
            f"this user may read, or {otherwise}"
        ) from error
    if is_file:
        raise CheckpointError(
            f"{setting} is {source!r}, a file; give the folder that holds it "
            f"({path.absolute().parent})"
        )
    return None

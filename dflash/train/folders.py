"""Which folders training may write: never over what it did not write, nor where it reads."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from dflash.errors import ConfigError, EngineError

DRAFTER_FILES = frozenset({"config.json", "model.safetensors"})


def check_drafter_folder(option: str, folder: Path) -> None:
    """Refuse a folder whose content an export would delete.

    Args:
        option: What named the folder, for the message.
        folder: Where a drafter is to be written.

    Raises:
        ConfigError: It is a file, or holds anything but a drafter, or the program runs inside.
    """
    place = folder.resolve()
    if Path.cwd().is_relative_to(place):
        raise ConfigError(
            f"{option} {folder} is the folder this program runs in, or one around it; name a "
            "folder for the drafter alone"
        )
    # The two beside it are where a drafter is built, and where the one before it waits.
    for suffix in ("", ".partial", ".outdated"):
        path = place.with_name(place.name + suffix)
        check_no_file(option, path)
        foreign = sorted(
            child.name
            for child in (path.iterdir() if path.exists() else ())
            if child.name not in DRAFTER_FILES or child.is_dir()
        )
        if foreign:
            raise ConfigError(
                f"{option} {folder} would delete {path}/{foreign[0]}, which is no part of a "
                "drafter; name a new folder or an older drafter's"
            )


def check_apart(writes: Mapping[str, Path], reads: Mapping[str, Path]) -> None:
    """Refuse folders to write that equal, hold or lie in one another or one that is read.

    Args:
        writes: Folders that are written, by the option that named each.
        reads: Folders that are read, by the option that named each.

    Raises:
        ConfigError: Two folders are not apart.
    """
    seen = dict(reads)
    for option, folder in writes.items():
        for other, path in seen.items():
            ours, theirs = folder.resolve(), path.resolve()
            if ours.is_relative_to(theirs) or theirs.is_relative_to(ours):
                raise ConfigError(
                    f"{option} {folder} and {other} {path} are the same folder, or one lies in the "
                    f"other; name another folder for {option}"
                )
        seen[option] = folder


def check_no_file(option: str, folder: Path) -> None:
    """Refuse a folder that is a file, or lies under one.

    Raises:
        ConfigError: It names the option and the file.
    """
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise ConfigError(f"{option} {folder}: {path} is a file; name a folder")


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn a failure to write into a folder into an error that names it.

    Raises:
        EngineError: The body raised what a full or read-only disk makes the libraries raise.
    """
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        raise EngineError(
            f"cannot write into {folder} ({error}); make room or name a folder that this user may "
            "write"
        ) from error

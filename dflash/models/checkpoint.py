"""A checkpoint on disk: found by name, checked before it is read, read tensor by tensor."""

import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from dflash.config import EMBEDDED_MODEL
from dflash.errors import CheckpointError
from dflash.models.config import ModelConfig, model_config_from_json, tensor_shapes
from dflash.models.embedded import OnProgress, ensure_embedded_model
from dflash.models.hub import downloaded, is_hub_id
from dflash.models.safetensors_file import SafetensorsFile, open_safetensors

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_MAX_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint whose config, names, shapes and sizes have been checked.

    Attributes:
        folder: Where it lies; the tokenizer's files lie beside the weights.
        config: Its sizes and constants.
        fingerprint: Equal for equal checkpoints; cheap, so it samples the weights.
        paths: The file that holds each tensor.
    """

    folder: Path
    config: ModelConfig
    fingerprint: str
    paths: Mapping[str, Path]

    def tensor(self, name: str) -> Tensor:
        """Return one tensor as stored, on the CPU."""
        ((_, tensor),) = self.tensors([name])
        return tensor

    def tensors(self, names: Iterable[str] | None = None) -> Iterator[tuple[str, Tensor]]:
        """Yield tensors as stored (bfloat16, float16 or float32), on the CPU.

        A tensor may be a view of the mapped file: copy what must outlive the file.

        Args:
            names: Which, in this order; None yields all of them, file by file.

        Raises:
            CheckpointError: A weight is infinite or not a number, or the file changed since it
                was checked.
        """
        for name in self.paths if names is None else names:
            path = self.paths[name]
            try:
                with safe_open(path, framework="pt") as file:
                    tensor = file.get_tensor(name)
            except (OSError, SafetensorError) as error:
                raise CheckpointError(f"cannot read {name} from {path}: {error}") from error
            # Both ends of a range with a NaN in it are NaN; one pass, nothing allocated.
            if not all(end.isfinite() for end in torch.aminmax(tensor)):
                raise CheckpointError(
                    f"{path}: {name} holds infinite or undefined weights; the file is damaged "
                    "or its training diverged; use another checkpoint"
                )
            yield name, tensor


def open_checkpoint(
    source: str, cache_dir: Path, on_progress: OnProgress | None = None
) -> Checkpoint:
    """Return the checkpoint that ``engine.model`` names, checked but not yet read.

    Args:
        source: The embedded model's name, a folder, or a hub id ``organisation/name``.
        cache_dir: Where the embedded model is converted to.
        on_progress: Called with the phase and the fraction done, in [0, 1].

    Raises:
        CheckpointError: There is none, it is damaged, or it is of a kind we do not compute.
        CacheFolderError: The embedded model cannot be converted into ``cache_dir``.
    """
    folder = _folder_of(source, cache_dir, on_progress)
    config = _read_config(folder)
    files = [open_safetensors(path) for path in _weight_files(folder)]
    shapes, paths = _merged(files)
    _check_tensors(folder, config, shapes)
    digest = hashlib.sha256(repr(config).encode())
    for file in files:
        digest.update(file.fingerprint.encode())
    return Checkpoint(
        folder=folder,
        config=config,
        fingerprint=digest.hexdigest(),
        paths={name: paths[name] for name in tensor_shapes(config)},
    )


def _folder_of(source: str, cache_dir: Path, on_progress: OnProgress | None) -> Path:
    if source == EMBEDDED_MODEL:
        return ensure_embedded_model(cache_dir, on_progress)
    if folder := _local_folder(source):
        return folder
    if is_hub_id(source):
        if on_progress:
            on_progress(f"downloading {source}", 0.0)
        return downloaded(source)
    near = difflib.get_close_matches(source, [EMBEDDED_MODEL], n=1)
    meant = f"did you mean {EMBEDDED_MODEL!r}?" if near else f"try {EMBEDDED_MODEL!r}"
    raise CheckpointError(
        f"engine.model is {source!r}: no such folder, and not a hub id (organisation/name); {meant}"
    )


def _local_folder(source: str) -> Path | None:
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
            f"engine.model is {source!r}, which cannot be looked up ({error}); name a folder "
            f"this user may read, or {EMBEDDED_MODEL!r}"
        ) from error
    if is_file:
        raise CheckpointError(
            f"engine.model is {source!r}, a file; give the folder that holds it "
            f"({path.absolute().parent})"
        )
    return None


def _read_config(folder: Path) -> ModelConfig:
    path = folder / "config.json"
    generation_path = folder / "generation_config.json"
    generation = _read_json(generation_path) if generation_path.exists() else None
    content = _read_json(path)
    try:
        return model_config_from_json(content, generation)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path}: {error.strerror}; engine.model must name a folder that holds "
            "config.json and *.safetensors"
        ) from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON ({error}); download it again") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold a JSON object; download it again")
    return content


def _weight_files(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if index.exists():
        weight_map = _read_json(index).get("weight_map")
        names = set(weight_map.values()) if isinstance(weight_map, dict) else set()
        # A name with a folder in it could point outside the checkpoint.
        if not names or not all(isinstance(n, str) and Path(n).name == n for n in names):
            raise CheckpointError(
                f"{index}: weight_map must map tensors to files beside it; download it again"
            )
        return [folder / name for name in sorted(names)]
    if (folder / _WEIGHTS).exists():
        return [folder / _WEIGHTS]
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        raise CheckpointError(
            f"{folder} has its weights only as {pickles[0]}: such a file can run code when it "
            "is read, so it is never opened; save the model with safetensors"
        )
    raise CheckpointError(f"{folder} has neither {_WEIGHTS} nor {_INDEX}; download it again")


def _merged(
    files: list[SafetensorsFile],
) -> tuple[dict[str, tuple[int, ...]], dict[str, Path]]:
    shapes: dict[str, tuple[int, ...]] = {}
    paths: dict[str, Path] = {}
    for file in files:
        for name, shape in file.shapes.items():
            if name in paths:
                raise CheckpointError(
                    f"{name} is in both {paths[name]} and {file.path}; remove one of the files"
                )
            shapes[name], paths[name] = shape, file.path
    return shapes, paths


def _check_tensors(folder: Path, config: ModelConfig, found: Mapping[str, tuple[int, ...]]) -> None:
    expected = tensor_shapes(config)
    if missing := [name for name in expected if name not in found]:
        raise CheckpointError(
            f"{folder} lacks {_some(missing)}, which its config.json asks for; download it again"
        )
    for name, shape in expected.items():
        if found[name] != shape:
            raise CheckpointError(
                f"{folder}: {name} has shape {list(found[name])}, its config.json says "
                f"{list(shape)}; the two files belong to different models"
            )
    if extra := [n for n in found if n not in expected and not _is_redundant(n, config)]:
        raise CheckpointError(
            f"{folder} also holds {_some(extra)}, which this engine's {config.family} forward "
            "would leave out; use a checkpoint of the plain architecture"
        )


def _is_redundant(name: str, config: ModelConfig) -> bool:
    """Whether a tensor repeats what the config or another tensor says."""
    is_tied_head = config.tie_word_embeddings and name == "lm_head.weight"
    return is_tied_head or name.endswith(".rotary_emb.inv_freq")


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_MAX_NAMES_SHOWN])
    rest = len(names) - _MAX_NAMES_SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown

"""A folder of safetensors files: what tensors there are, and each of them, read one by one."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from dflash.errors import CheckpointError
from dflash.models.safetensors_file import SafetensorsFile, open_safetensors

if TYPE_CHECKING:
    from torch import Tensor

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_MAX_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """The tensors of a folder; their headers were read and checked, their values not yet.

    Attributes:
        folder: Where they lie.
        shapes: Shape of each tensor by name.
        paths: The file that holds each tensor.
        fingerprints: Of each file.
    """

    folder: Path
    shapes: Mapping[str, tuple[int, ...]]
    paths: Mapping[str, Path]
    fingerprints: tuple[str, ...]

    def tensor(self, name: str) -> "Tensor":
        """Return one tensor as stored, on the CPU; `tensors` says more."""
        ((_, tensor),) = self.tensors([name])
        return tensor

    def tensors(self, names: Iterable[str]) -> "Iterator[tuple[str, Tensor]]":
        """Yield tensors as stored, on the CPU.

        A tensor may be a view of the mapped file: copy what must outlive the file.

        Args:
            names: Which, in this order.

        Raises:
            CheckpointError: A weight is infinite or not a number, or the file changed since it
                was checked.
        """
        # Here and not above: whoever only looks at names and shapes need not wait for torch.
        import torch

        for name in names:
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


def open_weight_files(folder: Path, index_names: Collection[str] = ()) -> WeightFiles:
    """Return the tensors of a folder.

    Args:
        folder: One file, or several with an index beside them.
        index_names: Names of tensors that hold ids or flags, not weights.

    Raises:
        CheckpointError: There are no safetensors, a file is damaged or of another kind, or a
            name occurs twice.
    """
    files = [open_safetensors(path, index_names) for path in _weight_paths(folder)]
    shapes, paths = _merged(files)
    return WeightFiles(folder, shapes, paths, tuple(file.fingerprint for file in files))


def read_json(path: Path) -> dict[str, Any]:
    """Return the object a JSON file of a checkpoint holds.

    Raises:
        CheckpointError: It cannot be read, or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path}: {error.strerror}; a checkpoint is a folder that holds "
            "config.json and *.safetensors"
        ) from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON ({error}); download it again") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold a JSON object; download it again")
    return content


def some(names: list[str]) -> str:
    """Return names for a message, the first few of many."""
    shown = ", ".join(names[:_MAX_NAMES_SHOWN])
    rest = len(names) - _MAX_NAMES_SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown


def _weight_paths(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if index.exists():
        weight_map = read_json(index).get("weight_map")
        names = list(weight_map.values()) if isinstance(weight_map, dict) else []
        # A name with a folder in it could point outside the checkpoint.
        if not names or not all(isinstance(n, str) and Path(n).name == n for n in names):
            raise CheckpointError(
                f"{index}: weight_map must map tensors to files beside it; download it again"
            )
        return [folder / name for name in sorted(set(names))]
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

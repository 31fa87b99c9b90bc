"""A training run on disk: its state, replaced as a whole, and its curve, a line at a time."""

import json
import os
import pickle
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dflash.errors import CheckpointError, ConfigError
from dflash.train.finite import check_finite
from dflash.train.folders import writing
from dflash.train.model import Drafter
from dflash.train.mtp_model import MtpHead
from dflash.train.mtp_shape import MtpShape
from dflash.train.shape import DrafterShape

_CHECKPOINT = "checkpoint.pt"
_CURVE = "curve.jsonl"
# What a file that is cut, or was never a state, makes the reader raise.
_DAMAGES = (
    *(OSError, RuntimeError, ValueError, TypeError, KeyError, AttributeError, EOFError),
    *(pickle.UnpicklingError, ConfigError),
)


@dataclass(frozen=True, slots=True)
class RunState:
    """All that a run needs to go on, and an export to be made; its tensors are on the CPU.

    Attributes:
        shape: The drafter's sizes.
        shortlist: Target ids it may predict, ascending, ``[draft_vocab]`` int64.
        target_fingerprint: Of the checkpoint it drafts for.
        seed: Of the run.
        second_version: Whether convolutions and selector take part by now.
        step: Steps taken.
        tokens: Context and block tokens computed so far.
        elapsed_s: Seconds spent in steps.
        drafter: Its parameters by their published names, float32.
        optimiser: The optimiser's own state.
        draw: Where the draw of sequences stands.
    """

    shape: DrafterShape | MtpShape
    shortlist: Tensor
    target_fingerprint: str
    seed: int
    second_version: bool
    step: int
    tokens: int
    elapsed_s: float
    drafter: dict[str, Tensor]
    optimiser: dict[str, Any]
    draw: dict[str, Any]


def save_state(folder: Path, state: RunState) -> None:
    """Replace the run's state; a crash at any moment leaves the old one or the new one.

    Raises:
        DivergedError: A parameter is not finite; the old state stays.
        EngineError: The folder cannot be written.
    """
    check_finite(state.drafter, state.step)
    part = folder / f"{_CHECKPOINT}.part"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            torch.save({name: _plain(getattr(state, name)) for name in state.__slots__}, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / _CHECKPOINT)


def load_state(folder: Path) -> RunState | None:
    """Return the run's state, None if it has none yet.

    Raises:
        CheckpointError: The file is damaged, or its parts do not fit one another.
    """
    path = folder / _CHECKPOINT
    if not path.exists():
        return None
    try:
        # Tensors and plain values only: such a file runs no code when it is read.
        content = torch.load(path, weights_only=True)
        state = RunState(**{**content, "shape": _shape(content["shape"])})
        _check_whole(state)
    except _DAMAGES as error:
        raise CheckpointError(
            f"cannot read {path} ({error}); remove it to start the run anew"
        ) from error
    return state


def log_line(folder: Path, entry: Mapping[str, Any]) -> None:
    """Append one line to the run's curve."""
    with writing(folder), (folder / _CURVE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(dict(entry)) + "\n")


def _plain(value: Any) -> Any:
    return asdict(value) if isinstance(value, DrafterShape | MtpShape) else value


def _shape(values: Mapping[str, Any]) -> DrafterShape | MtpShape:
    # Only a chain has a length of its own; a block has slots.
    return MtpShape(**values) if "draft_length" in values else DrafterShape(**values)


def _check_whole(state: RunState) -> None:
    shape, ids = state.shape, state.shortlist
    # Nothing is computed or kept on this device: only names and sizes are made.
    with torch.device("meta"):
        wanted = (MtpHead(shape) if isinstance(shape, MtpShape) else Drafter(shape)).state_dict()
    sizes = {name: tensor.shape for name, tensor in state.drafter.items()}
    for name, tensor in wanted.items():
        if sizes.get(name) != tensor.shape:
            raise ValueError(f"{name} is missing or of another size")
    if len(sizes) > len(wanted):
        raise ValueError("it holds tensors that are no part of such a drafter")
    if not len(ids) or ids[0] < 0 or ids[-1] >= shape.vocab_size or (ids.diff() < 1).any():
        raise ValueError("its shortlist is out of order")

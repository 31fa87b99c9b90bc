"""A safetensors file whose header was read and checked against the file's size."""

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from dflash.errors import CheckpointError

_LENGTH_BYTES = 8
# The format's own limit; a larger number means the file is something else.
_MAX_HEADER_BYTES = 100_000_000
_WEIGHT_BYTES = {"BF16": 2, "F16": 2, "F32": 4}
_INDEX_BYTES = {"I64": 8, "BOOL": 1}
_NUM_SAMPLES = 64
_SAMPLE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    """One file of a checkpoint.

    Attributes:
        path: Where it lies.
        shapes: Shape of each tensor by name.
        fingerprint: Hash of the header, the size and a sample of the bytes.
    """

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    fingerprint: str


def open_safetensors(path: Path, index_names: Collection[str] = ()) -> SafetensorsFile:
    """Return the file with its header checked; reads the header and a few samples, no more.

    Args:
        path: Where it lies.
        index_names: Names of tensors that hold ids or flags, not weights.

    Raises:
        CheckpointError: The file is missing, cut short, of another format, or holds a type
            this engine does not read.
    """
    try:
        num_bytes = path.stat().st_size
        with path.open("rb") as file:
            header = _read_header(file, num_bytes)
            samples = _read_samples(file, num_bytes)
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path}: {error.strerror}; download the checkpoint again"
        ) from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} {error}; download it again") from error
    entries = _entries(header, path, index_names)
    data_bytes = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    expected = _LENGTH_BYTES + len(header) + data_bytes
    if num_bytes != expected:
        raise CheckpointError(
            f"{path} has {num_bytes} bytes where its header promises {expected}: it was cut "
            "short or overwritten; download it again"
        )
    return SafetensorsFile(
        path=path,
        shapes={name: tuple(entry["shape"]) for name, entry in entries.items()},
        fingerprint=hashlib.sha256(b"%d %b %b" % (num_bytes, header, samples)).hexdigest(),
    )


def _read_header(file: BinaryIO, num_bytes: int) -> bytes:
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if not 0 < length <= _MAX_HEADER_BYTES:
        raise ValueError("is not a safetensors file")
    if length > num_bytes - _LENGTH_BYTES:
        raise ValueError("is cut short within its header")
    return file.read(length)


def _read_samples(file: BinaryIO, num_bytes: int) -> bytes:
    """Return bytes spread evenly over the file.

    Two fine-tunes of one model have the same header and size, and differ nearly everywhere else.
    """
    parts = []
    for index in range(_NUM_SAMPLES):
        file.seek(num_bytes * index // _NUM_SAMPLES)
        parts.append(file.read(_SAMPLE_BYTES))
    return b"".join(parts)


def _entries(header: bytes, path: Path, index_names: Collection[str]) -> dict[str, dict[str, Any]]:
    try:
        entries = json.loads(header)
        entries.pop("__metadata__", None)
        for name, entry in entries.items():
            known = _INDEX_BYTES if name in index_names else _WEIGHT_BYTES
            if entry["dtype"] not in known:
                raise CheckpointError(
                    f"{path}: {name} is stored as {entry['dtype']}; this engine reads "
                    f"{', '.join(known)} here; convert the checkpoint"
                )
            begin, end = entry["data_offsets"]
            if math.prod(entry["shape"]) * known[entry["dtype"]] != end - begin:
                raise ValueError(f"the size of {name} is not that of its shape")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} has a broken header ({error}); download it again") from error
    return entries

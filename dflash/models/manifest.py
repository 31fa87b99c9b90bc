"""The manifest of a converted model: what it was made from, and the hash of every file."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from dflash.cache_folder import sha256_of

MANIFEST_FILE = "manifest.json"
# The weights' header and every other file lie within it, so a start reads little.
HEAD_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What one file must hold.

    Attributes:
        num_bytes: Its size.
        sha256: Hash of all its bytes.
        head_sha256: Hash of its first `HEAD_BYTES`.
    """

    num_bytes: int
    sha256: str
    head_sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything known about a converted folder.

    Attributes:
        converter_version: Of the code that wrote it.
        source_sha256: Hash of the file it was made from.
        files: Each file's name and record.
    """

    converter_version: int
    source_sha256: str
    files: dict[str, FileRecord]


def record_of(data: bytes) -> FileRecord:
    """Return the record of a file that is to hold ``data``."""
    return FileRecord(
        num_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        head_sha256=hashlib.sha256(data[:HEAD_BYTES]).hexdigest(),
    )


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest into ``folder``."""
    text = json.dumps(asdict(manifest), indent=2, sort_keys=True)
    (folder / MANIFEST_FILE).write_text(text + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest | None:
    """Return the folder's manifest, or None where it has none that can be read."""
    try:
        content = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
        files = {name: FileRecord(**record) for name, record in content.pop("files").items()}
        return Manifest(files=files, **content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def damage_in(folder: Path, manifest: Manifest, *, deep: bool) -> str | None:
    """Return what is wrong with the folder's files, or None where they are as written.

    Args:
        folder: Where the files lie.
        manifest: What they must hold.
        deep: Hash every byte. Otherwise sizes and heads only, which takes milliseconds.
    """
    for name, record in manifest.files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if (found := path.stat().st_size) != record.num_bytes:
            return f"{name} has {found} bytes instead of {record.num_bytes}"
        if _head_sha256(path) != record.head_sha256:
            return f"the first bytes of {name} have changed"
        if deep and sha256_of(path) != record.sha256:
            return f"the bytes of {name} have changed"
    return None


def _head_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.sha256(file.read(HEAD_BYTES)).hexdigest()

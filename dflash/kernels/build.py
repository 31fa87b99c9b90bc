"""Compile the CPU kernels once per machine and load them."""

import ctypes
import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from dflash.cache_folder import default_cache_dir, sha256_of
from dflash.errors import CacheFolderError, KernelError

_FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fPIC", "-fopenmp", "-Wall", "-Wno-psabi")
_COMPILE_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class NativeBuild:
    """The compiled library, or why there is none.

    Attributes:
        library: The loaded library; None where it could not be built.
        why_unavailable: A sentence for the log where ``library`` is None, else empty.
        key: Hash of sources, flags, compiler and processor; empty where ``library`` is None.
    """

    library: ctypes.CDLL | None
    why_unavailable: str
    key: str = ""


@functools.cache
def native_build() -> NativeBuild:
    """Return the compiled kernels, building them on the first call on a machine.

    ``DFLASH_NATIVE=0`` in the environment skips them, so that the torch forms can be tested.
    """
    if os.environ.get("DFLASH_NATIVE") == "0":
        return NativeBuild(None, "DFLASH_NATIVE=0 is set")
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(compiler[0]) is None:
        return NativeBuild(None, "no C compiler was found; install gcc or set CC")
    try:
        return _loaded(compiler, default_cache_dir() / "kernels")
    except (KernelError, CacheFolderError, OSError) as error:
        return NativeBuild(None, str(error))


def kernels_fingerprint() -> str:
    """Return what identifies the kernels that run here: their sources, and how they are built.

    What was measured with one fingerprint says nothing of steps with another.
    """
    import torch

    key = hashlib.sha256(f"torch {torch.__version__}\0".encode())
    for file in _files_of(resources.files("dflash.kernels"), (".py",)):
        key.update(file.name.encode() + b"\0" + file.read_bytes())
    key.update((native_build().key or native_unavailable_reason()).encode())
    return key.hexdigest()[:20]


def native_library() -> ctypes.CDLL | None:
    """Return the compiled library, or None (`native_unavailable_reason` says why)."""
    return native_build().library


def native_unavailable_reason() -> str:
    """Return why there is no compiled library; empty where there is one."""
    return native_build().why_unavailable


def _loaded(compiler: list[str], folder: Path) -> NativeBuild:
    """Return the library of this source, compiler and processor, built where there is none whole.

    A damaged library would end the process when it is loaded, so its hash is checked first.
    """
    sources = _files_of(resources.files("dflash.kernels").joinpath("csrc"))
    key = _key(compiler, sources)
    library = folder / f"libdflash-{key}.so"
    if not _is_whole(library):
        _build(compiler, sources, library)
    return NativeBuild(ctypes.CDLL(str(library)), "", key)


def _files_of(folder: Traversable, endings: tuple[str, ...] = ("",)) -> list[Traversable]:
    """Return a folder's files of some kinds, by name."""
    files = (entry for entry in folder.iterdir() if entry.is_file())
    return sorted(
        (entry for entry in files if entry.name.endswith(endings)), key=lambda entry: entry.name
    )


def _key(compiler: list[str], sources: list[Traversable]) -> str:
    key = hashlib.sha256()
    for part in (
        *compiler,
        _compiler_version(compiler),
        _cpu_identity(),
        _openmp_library(),
        *_FLAGS,
    ):
        key.update(part.encode() + b"\0")
    for source in sources:
        key.update(source.name.encode() + b"\0" + source.read_bytes())
    return key.hexdigest()[:20]


def _is_whole(library: Path) -> bool:
    try:
        return _hash_file(library).read_text(encoding="ascii") == sha256_of(library)
    except OSError:
        return False


def _hash_file(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _build(compiler: list[str], sources: list[Traversable], library: Path) -> None:
    folder = library.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            for source in sources:
                Path(scratch, source.name).write_bytes(source.read_bytes())
            built = _compile(compiler, Path(scratch))
            digest = Path(scratch, "sha256")
            digest.write_text(sha256_of(built), encoding="ascii")
            # Renames are atomic, and two builds of one source may differ: the hash goes last, so
            # that a start in between finds no match and builds once more.
            os.replace(built, library)
            os.replace(digest, _hash_file(library))
    except OSError as error:
        raise CacheFolderError(
            f"cannot write the compiled kernels to {folder}: {error.strerror}; set "
            "DFLASH_CACHE_DIR to a folder that can be written"
        ) from error


def _compile(compiler: list[str], folder: Path) -> Path:
    objects = []
    for source in sorted(folder.glob("*.c")):
        target = source.with_suffix(".o")
        _run([*compiler, *_FLAGS, "-c", str(source), "-o", str(target)])
        objects.append(str(target))
    built = folder / "libdflash.so"
    # Torch brings its own OpenMP runtime. Linked to that one, kernels and torch share a pool of
    # threads; with a second runtime two pools would spin against each other on the same cores.
    openmp = _openmp_library()
    _run([*compiler, "-shared", *objects, "-o", str(built), openmp or "-fopenmp", "-lm"])
    return built


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise KernelError(f"{command[0]} took over {_COMPILE_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise KernelError(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _compiler_version(compiler: list[str]) -> str:
    return _run([*compiler, "--version"]).partition("\n")[0]


def _cpu_identity() -> str:
    """Return the CPU's model and feature flags: ``-march=native`` code is only for its like."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    wanted = ("model name", "flags", "Features")
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(wanted)))


def _openmp_library() -> str:
    """Return the path of torch's OpenMP runtime, or nothing where it has none of its own."""
    import torch

    package = Path(torch.__file__).parent
    for folder in (package / "lib", package.parent / "torch.libs"):
        found = sorted(folder.glob("libgomp*.so*"))
        if found:
            return str(found[0])
    return ""

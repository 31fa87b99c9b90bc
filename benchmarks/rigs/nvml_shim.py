"""A scripted device behind the real `pynvml`: a compiled library, and the files that move it."""

import ctypes
import os
import shutil
import subprocess
from enum import IntEnum
from pathlib import Path

SHIM_UUID = "GPU-5a1d0000-0000-0000-0000-000000000001"
_LIBRARY = "libnvidia-ml.so.1"
_SOURCE = Path(__file__).with_suffix(".c")


class NvmlError(IntEnum):
    """The driver's numbers for what can go wrong."""

    NONE = 0
    UNINITIALIZED = 1
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    LIB_RM_VERSION_MISMATCH = 18
    ARGUMENT_VERSION_MISMATCH = 25
    UNKNOWN = 999


def compiler() -> str | None:
    """Return this machine's C compiler; None where it has none."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def compiled_shim(folder: Path) -> Path:
    """Compile the library into a folder and return the folder, for the loader's path."""
    cc = compiler()
    assert cc is not None, "ask `compiler` first"
    # With the driver's own name inside, a process that has loaded it finds it under that name.
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{_LIBRARY}"]
    subprocess.run([cc, *flags, "-o", str(folder / _LIBRARY), str(_SOURCE)], check=True)
    return folder


class NvmlShim:
    """One device: what is scripted, and what the replica that is watched holds.

    Both are files that are replaced whole, so that a reader never sees half of one. Whoever
    scripts moves one of them and the replica's side the other, from any process.
    """

    def __init__(self, library_folder: Path, folder: Path, **script: int | str) -> None:
        self._library_folder = library_folder
        self._folder = folder
        self._script: dict[str, int | str] = {"uuid": SHIM_UUID}
        self.script(**script)
        self.hold(0)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to meet this device."""
        return {
            "LD_LIBRARY_PATH": str(self._library_folder),
            "NVML_SHIM_FOLDER": str(self._folder),
        }

    def enter(self) -> None:
        """Let this very process meet the device; `pynvml` must not have asked for one before."""
        ctypes.CDLL(str(self._library_folder / _LIBRARY), mode=ctypes.RTLD_GLOBAL)
        os.environ["NVML_SHIM_FOLDER"] = str(self._folder)

    def script(self, **changes: int | str) -> None:
        """Change what the device says.

        Args:
            changes: ``total``, ``reserved``, ``cotenant`` in bytes, ``clock_mhz``, ``reasons`` as
                the driver's bits, ``lied_free`` in bytes, ``uuid``; and the error that answers
                ``init_error``, ``handle_error``, ``memory_error``, ``v2_error``, ``clock_error``.
        """
        self._script.update(changes)
        lines = [f"{word} {_written(value)}\n" for word, value in self._script.items()]
        self._replace("device", "".join(lines))

    def hold(self, num_bytes: int) -> None:
        """Say how much the replica itself holds now: the sum of its live components."""
        self._replace("own", f"{num_bytes}\n")

    def _replace(self, name: str, text: str) -> None:
        draft = self._folder / f"{name}.new"
        draft.write_text(text, encoding="ascii")
        os.replace(draft, self._folder / name)


def _written(value: int | str) -> str:
    return str(int(value)) if isinstance(value, int) else value

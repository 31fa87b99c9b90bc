"""A scripted device behind the real `pynvml`: a compiled library, and the files that move it."""

import os
import shutil
import subprocess
import sys
from enum import IntEnum
from pathlib import Path

from policy.json_form import from_json
from policy.readings import MemoryReading

SHIM_UUID = "GPU-5a1d0000-0000-0000-0000-000000000001"
_SOURCE = Path(__file__).with_suffix(".c")
_ROOT = Path(__file__).parents[2]


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
    library = folder / "libnvidia-ml.so.1"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([cc, *flags, "-o", str(library), str(_SOURCE)], check=True)
    return folder


class NvmlShim:
    """One device: what a test scripts, and what the replica under test holds.

    Both are files that are replaced whole, so that a reader never sees half of one. The test moves
    one of them and the replica's side the other, from any process.
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


class ReadingProcess:
    """A process of its own that asks the real `pynvml` over a shim, once for each reading."""

    def __init__(self, shim: NvmlShim, known_total_bytes: int | None = None) -> None:
        known = [] if known_total_bytes is None else [str(known_total_bytes)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.rigs.nvml_shim", *known],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            env={**os.environ, **shim.environment},
        )

    def read(self) -> MemoryReading:
        """Return what `NvmlProbe` says there now."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\n")
        stdin.flush()
        return from_json(MemoryReading, stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _written(value: int | str) -> str:
    return str(int(value)) if isinstance(value, int) else value


def _answer_readings(arguments: list[str]) -> None:
    from policy.json_form import as_json
    from policy.vram import NvmlProbe

    known = int(arguments[0]) if arguments else None
    probe = NvmlProbe(SHIM_UUID, known)
    for _ in sys.stdin:
        sys.stdout.write(as_json(probe.read()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _answer_readings(sys.argv[1:])

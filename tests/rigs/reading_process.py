"""A process of its own that asks the real `pynvml` over a scripted device."""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.rigs.nvml_shim import SHIM_UUID, NvmlShim
from policy.json_form import as_json, from_json
from policy.readings import MemoryReading
from policy.vram import NvmlProbe

_ROOT = Path(__file__).parents[2]


class ReadingProcess:
    """A process of its own that asks the real `pynvml` over a shim, once for each reading."""

    def __init__(self, shim: NvmlShim, known_total_bytes: int | None = None) -> None:
        known = [] if known_total_bytes is None else [str(known_total_bytes)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.rigs.reading_process", *known],
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


def _answer_readings(arguments: list[str]) -> None:
    known = int(arguments[0]) if arguments else None
    probe = NvmlProbe(SHIM_UUID, known)
    for _ in sys.stdin:
        sys.stdout.write(as_json(probe.read()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _answer_readings(sys.argv[1:])

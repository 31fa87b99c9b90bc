"""The processes of one Ray cluster, found by a mark they inherit: their memory, and a freezer."""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import GIB

MARK_VARIABLE = "DFLASH_BENCHMARK_CLUSTER"


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of a set of processes, shared pages counted once (PSS), GiB.

    Attributes:
        replica_gib: The engine's replica.
        cluster_gib: Every process of the cluster, the replica included.
    """

    replica_gib: float
    cluster_gib: float


class ClusterProcesses:
    """All processes that inherited one value of the mark.

    Parenthood does not find them: Ray's workers are children of processes that detach.
    """

    def __init__(self, mark: str, replica_title: str) -> None:
        """Look for processes.

        Args:
            mark: The value of `MARK_VARIABLE` that the first process was started with.
            replica_title: Part of the title that Ray gives the engine's replica.
        """
        self._mark = f"{MARK_VARIABLE}={mark}".encode()
        self._replica_title = replica_title.encode()

    def ids(self) -> list[int]:
        """Return the ids of those that live now."""
        return [int(folder.name) for folder in self._folders()]

    def footprint(self) -> Footprint:
        """Return their memory now."""
        sizes = [(self._is_replica(folder), _pss_gib(folder)) for folder in self._folders()]
        return Footprint(
            replica_gib=sum(size for is_replica, size in sizes if is_replica),
            cluster_gib=sum(size for _, size in sizes),
        )

    def cpu_s(self) -> float:
        """Return the CPU that all of them have taken, seconds."""
        return sum(_cpu_s(folder) for folder in self._folders())

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Hold them stopped: an idle cluster uses a fifth of a core, which is not the engine's.

        Ray takes a stop of some seconds for a slow machine. Longer than half a minute, and it
        would begin to replace what does not answer.
        """
        ids = self.ids()
        self._signal(ids, signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(ids, signal.SIGCONT)

    def kill(self) -> None:
        """End those that still live."""
        self._signal(self.ids(), signal.SIGKILL)

    def _signal(self, ids: list[int], number: signal.Signals) -> None:
        for process_id in ids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, number)

    def _folders(self) -> Iterator[Path]:
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal() and self._mark in _read(folder / "environ").split(b"\0"):
                yield folder

    def _is_replica(self, folder: Path) -> bool:
        return self._replica_title in _read(folder / "cmdline")


def _read(path: Path) -> bytes:
    """Return a file of /proc; nothing where the process ended meanwhile."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _pss_gib(folder: Path) -> float:
    for line in _read(folder / "smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024 / GIB
    return 0.0


def _cpu_s(folder: Path) -> float:
    """Return the CPU that a process has taken itself; 0 where it ended meanwhile."""
    # The name, in brackets, may hold spaces and brackets; user and system time are 12 fields on.
    fields = _read(folder / "stat").rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0

"""How much memory this process may use, and how much of it is taken already."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """Memory of the machine, or of the container this process runs in.

    Attributes:
        total_bytes: The least of physical memory and every control group's limit.
        used_bytes: What cannot be taken of it: held by any process, file caches left out.
        limited_by: What set the total, in words.
    """

    total_bytes: int
    used_bytes: int
    limited_by: str


@dataclass(frozen=True, slots=True)
class _ControlGroupFiles:
    """Where one version of the kernel's control groups keeps its numbers."""

    controller: str
    mount: str
    limit: str
    usage: str
    file_cache_key: str


_VERSIONS = (
    _ControlGroupFiles("", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    _ControlGroupFiles(
        "memory",
        "sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)


def memory_of_this_machine(root: Path = Path("/")) -> MachineMemory:
    """Return what this process may use in all.

    Args:
        root: Where ``proc`` and ``sys`` lie.
    """
    # A container's limit can exceed the machine it runs on, so the physical memory competes.
    return min([_physical(root), *_control_groups(root)], key=lambda memory: memory.total_bytes)


def _physical(root: Path) -> MachineMemory:
    kibibytes = _numbers(root / "proc/meminfo")
    if "MemTotal:" in kibibytes:
        total = kibibytes["MemTotal:"] * 1024
        return MachineMemory(
            total, total - kibibytes.get("MemAvailable:", 0) * 1024, "physical memory"
        )
    # Systems without /proc do not say what is in use in a portable way.
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return MachineMemory(total, 0, "physical memory")


def _control_groups(root: Path) -> Iterator[MachineMemory]:
    """Yield every limit above this process: a parent's binds as much as its own."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for files in _VERSIONS:
            if files.controller in controllers.split(","):
                mount = root / files.mount
                group = mount / path.lstrip("/")
                # Inside a container the path may be the host's; the mount is then its own group.
                for folder in (group, *group.parents):
                    yield from _limit_of(folder, files)
                    if folder == mount:
                        break


def _limit_of(folder: Path, files: _ControlGroupFiles) -> Iterator[MachineMemory]:
    limit = _text(folder / files.limit).strip()
    if not limit.isdecimal():
        return
    usage = _text(folder / files.usage).strip()
    file_cache = _numbers(folder / "memory.stat").get(files.file_cache_key, 0)
    used = max(0, int(usage) - file_cache) if usage.isdecimal() else 0
    yield MachineMemory(int(limit), used, "the container's limit")


def _numbers(path: Path) -> dict[str, int]:
    """Return the lines of the form ``word number ...`` as a mapping."""
    rows = (line.split() for line in _text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

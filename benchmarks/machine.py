"""What the numbers of a benchmark were measured on."""

import os
import platform
from importlib import metadata
from pathlib import Path

_CPU_FLAGS_OF_INTEREST = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
_DISTRIBUTIONS = ("torch", "transformers", "ray")

GIB = 2**30


def usable_cpus() -> list[int]:
    """Return the ids of the CPUs this process may run on, ascending."""
    return sorted(os.sched_getaffinity(0))


def machine_facts() -> dict[str, str | int | float]:
    """Return the facts without which a speed means nothing."""
    fields = _first_cpu()
    flags = set(fields.get("flags", "").split())
    facts: dict[str, str | int | float] = {
        "cpu": fields.get("model name", platform.processor() or platform.machine()),
        "cpu_flags": " ".join(flag for flag in _CPU_FLAGS_OF_INTEREST if flag in flags),
        "cpus": len(usable_cpus()),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB, 1),
        "load_average": round(os.getloadavg()[0], 2),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
    }
    for name in _DISTRIBUTIONS:
        version = _version(name)
        if version is not None:
            facts[name] = version
    return facts


def _first_cpu() -> dict[str, str]:
    """Return the fields of the first entry of /proc/cpuinfo; empty where there is none."""
    try:
        entry = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n", 1)[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in entry.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None

from pathlib import Path

import pytest

from dflash.machine_memory import memory_of_this_machine

MEMINFO = "MemTotal:       8192 kB\nMemFree:        1000 kB\nMemAvailable:   6144 kB\n"
KIB = 1024
UNLIMITED_V1 = str(2**63 - 4096)


def machine(root: Path, groups: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": MEMINFO, "proc/self/cgroup": groups, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_a_limit_the_physical_memory_counts(tmp_path):
    memory = memory_of_this_machine(machine(tmp_path, "0::/\n", {}))

    assert (memory.total_bytes, memory.used_bytes) == (8192 * KIB, 2048 * KIB)
    assert memory.limited_by == "physical memory"


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        pytest.param(
            "0::/pod/box\n",
            {
                "sys/fs/cgroup/pod/box/memory.max": "4194304\n",
                "sys/fs/cgroup/pod/box/memory.current": "3145728\n",
                "sys/fs/cgroup/pod/box/memory.stat": "anon 5\ninactive_file 1048576\n",
            },
            id="version 2, own group",
        ),
        pytest.param(
            "0::/pod/box\n",
            {
                "sys/fs/cgroup/pod/box/memory.max": "max\n",
                "sys/fs/cgroup/pod/memory.max": "4194304\n",
                "sys/fs/cgroup/pod/memory.current": "2097152\n",
            },
            id="version 2, limit on the parent",
        ),
        pytest.param(
            "0::/a/path/of/the/host\n",
            {
                "sys/fs/cgroup/memory.max": "4194304\n",
                "sys/fs/cgroup/memory.current": "2097152\n",
            },
            id="version 2, the container's mount is its group",
        ),
        pytest.param(
            "5:cpu,cpuacct:/box\n4:memory:/box\n0::/\n",
            {
                "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "4194304\n",
                "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "3145728\n",
                "sys/fs/cgroup/memory/box/memory.stat": "total_inactive_file 1048576\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": UNLIMITED_V1,
            },
            id="version 1",
        ),
    ],
)
def test_a_containers_limit_counts_and_its_file_cache_is_not_in_use(tmp_path, groups, files):
    memory = memory_of_this_machine(machine(tmp_path, groups, files))

    assert (memory.total_bytes, memory.used_bytes) == (4194304, 2097152)
    assert memory.limited_by == "the container's limit"


@pytest.mark.parametrize(
    ("groups", "name"),
    [
        ("4:memory:/box\n", "sys/fs/cgroup/memory/box/memory.limit_in_bytes"),
        ("0::/box\n", "sys/fs/cgroup/box/memory.max"),
    ],
)
@pytest.mark.parametrize("limit", [UNLIMITED_V1, "max", "", "not a number"])
def test_a_limit_over_the_physical_memory_or_unreadable_binds_nothing(
    tmp_path, groups, name, limit
):
    memory = memory_of_this_machine(machine(tmp_path, groups, {name: limit}))

    assert memory.limited_by == "physical memory"


def test_a_system_without_proc_reports_its_physical_memory(tmp_path):
    memory = memory_of_this_machine(tmp_path)

    assert memory.total_bytes > 0
    assert memory.used_bytes == 0


def test_this_machine_has_memory_and_some_of_it_is_in_use():
    memory = memory_of_this_machine()

    assert 0 <= memory.used_bytes < memory.total_bytes

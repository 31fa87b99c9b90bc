"""Whatever stands in the system's files: memory is told or left out, and nothing is raised."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from dflash.machine_memory import memory_of_this_machine

# What systems have been seen to say in place of a number, and anything else.
SAID = st.sampled_from(["", "[N/A]", "Not Supported", "max", "-1", "8128", "0:", "1::"]) | st.text()
BYTES = SAID.map(str.encode) | st.binary()
LINES = st.lists(
    st.sampled_from(["MemTotal: 8192 kB", "MemAvailable:", "MemTotal:", "0::/box", "4:memory:/box"])
    | SAID
).map(lambda lines: "\n".join(lines).encode())
PLACES = (
    "proc/meminfo",
    "proc/self/cgroup",
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/box/memory.current",
    "sys/fs/cgroup/box/memory.stat",
    "sys/fs/cgroup/memory/box/memory.limit_in_bytes",
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(PLACES, BYTES | LINES)))
def test_whatever_the_systems_files_say_is_read_or_left_out(files: dict[str, bytes]):
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        memory = memory_of_this_machine(Path(folder))
    assert memory.total_bytes >= 0
    assert memory.used_bytes >= 0

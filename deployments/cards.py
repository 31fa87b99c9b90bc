"""Memory of the accelerator cards that a configuration can be checked against, by name."""

from collections.abc import Mapping
from difflib import get_close_matches

from dflash.machine_memory import MachineMemory
from dflash.memory import GIB, MIB

# As the driver reports it, MiB; names are those that Ray gives accelerators.
_TOTAL_MIB: Mapping[str, int] = {
    "A10G": 23_028,
    "A100-40G": 40_960,
    "A100-80G": 81_920,
    "B200": 183_359,
    "GH200": 97_871,
    "H100": 81_559,
    "H200": 143_771,
    "L4": 23_034,
    "L40S": 46_068,
    "T4": 15_360,
}
# What is gone before an engine takes anything: the driver's part, a context, libraries.
_ALLOWANCE_BYTES = 512 * MIB


class UnknownCardError(ValueError):
    """No card of that name is known; the message names the nearest."""


def memory_of_card(name: str) -> MachineMemory:
    """Return the memory of a card.

    Raises:
        UnknownCardError: There is none of that name.
    """
    total_mib = _TOTAL_MIB.get(name.upper())
    if total_mib is None:
        near = get_close_matches(name.upper(), _TOTAL_MIB, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(_TOTAL_MIB)};"
        raise UnknownCardError(f"no card {name!r}: {hint} --device-memory takes GiB instead")
    return MachineMemory(total_mib * MIB, _ALLOWANCE_BYTES, f"one {name.upper()}")


def memory_of_size(gib: float) -> MachineMemory:
    """Return the memory of a device of some GiB."""
    return MachineMemory(int(gib * GIB), _ALLOWANCE_BYTES, f"a device of {gib:g} GiB")

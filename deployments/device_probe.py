"""Whom to ask for the memory of the device that an engine runs on."""

import os
from typing import TYPE_CHECKING

from dflash.machine_memory import memory_of_this_machine
from policy.vram import MemoryProbe, NvmlProbe, StandInProbe

if TYPE_CHECKING:
    import torch


def probe_of(device: "torch.device") -> MemoryProbe:
    """Return the probe of a device.

    The processor has no driver to ask: the container or the machine answers. A CUDA device is
    asked by its UUID, since the driver, the framework and a container number devices differently.
    """
    if device.type != "cuda":
        return StandInProbe(_machine)
    import torch

    index = torch.cuda.current_device() if device.index is None else device.index
    facts = torch.cuda.get_device_properties(index)
    uuid = driver_uuid(str(facts.uuid), os.environ.get("CUDA_VISIBLE_DEVICES", ""), index)
    return NvmlProbe(uuid, facts.total_memory, StandInProbe(lambda: _framework(index)))


def driver_uuid(framework_uuid: str, visible_devices: str, index: int) -> str:
    """Return the name by which a driver knows a device.

    Args:
        framework_uuid: What the framework says, which may be the parent's for a slice.
        visible_devices: The value of ``CUDA_VISIBLE_DEVICES``: indices, UUIDs, beginnings of
            UUIDs, or slices.
        index: The framework's number for the device, which counts along that value.
    """
    visible = [name.strip() for name in visible_devices.split(",")]
    if index < len(visible) and visible[index].startswith("MIG-"):
        return visible[index]
    is_whole = framework_uuid.startswith(("GPU-", "MIG-"))
    return framework_uuid if is_whole else f"GPU-{framework_uuid}"


def _machine() -> tuple[int, int]:
    memory = memory_of_this_machine()
    if memory.used_bytes <= 0:
        # This very process uses some: a machine that counts none does not count.
        raise ValueError("the machine does not say how much memory is in use")
    return memory.total_bytes, memory.total_bytes - memory.used_bytes


def _framework(index: int) -> tuple[int, int]:
    """Return total and free memory as the framework counts them; the machine's if it cannot."""
    import torch

    try:
        free_bytes, total_bytes = torch.cuda.mem_get_info(index)
    except RuntimeError:
        return _machine()
    return total_bytes, free_bytes

"""Memory of one device as its driver tells it, or of what stands in for it."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Protocol

from policy.errors import PolicyError
from policy.readings import MemoryReading, MemoryTrouble

# Clock reasons that mean the device runs slower than when it was profiled. Being idle is none, nor
# is the power cap, which a busy device runs into while it is profiled, too.
_THROTTLE_REASONS = (
    "nvmlClocksThrottleReasonHwSlowdown",
    "nvmlClocksThrottleReasonSwThermalSlowdown",
    "nvmlClocksThrottleReasonHwThermalSlowdown",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown",
)
# How each of the driver's errors is answered; any other one is a failure that may pass.
_TROUBLES = {
    "NVMLError_LibraryNotFound": MemoryTrouble.ABSENT,
    "NVMLError_DriverNotLoaded": MemoryTrouble.ABSENT,
    "NVMLError_LibRmVersionMismatch": MemoryTrouble.ABSENT,
    "NVMLError_NotFound": MemoryTrouble.ABSENT,
    "NVMLError_NoPermission": MemoryTrouble.REFUSED,
    "NVMLError_NotSupported": MemoryTrouble.UNSUPPORTED,
    "NVMLError_GpuIsLost": MemoryTrouble.LOST,
}
# A slice of a device may be told the whole device's memory. More than this over what the process
# can see cannot be its own.
_TOTAL_TOLERANCE = 0.1


class MemoryProbe(Protocol):
    """Something that can be asked for memory, a few times a second, from a thread of its own."""

    def read(self) -> MemoryReading:
        """Return a reading; what goes wrong is in it, and nothing is raised."""
        ...


class StandInProbe:
    """Memory of the machine, the container or a framework's own count, where no driver is asked."""

    def __init__(self, total_and_free: Callable[[], tuple[int, int]]) -> None:
        self._total_and_free = total_and_free

    def read(self) -> MemoryReading:
        """Return the stand-in's reading."""
        try:
            total, free = self._total_and_free()
        except (OSError, RuntimeError, ValueError):
            return MemoryReading(trouble=MemoryTrouble.FAILED)
        return _plausible(MemoryReading(total, free, None), None)


class NvmlProbe:
    """One device, by its UUID: indices differ between the driver, the framework and a container.

    The stand-in answers in the driver's place where memory is shared with the machine, where the
    driver does not tell this process, and where it tells another device's numbers.

    Args:
        device_uuid: ``GPU-...``, or ``MIG-...`` for a slice.
        known_total_bytes: What the framework says the device has; None where it is not known.
        stand_in: Answers where the driver cannot.
        nvml: The driver's module; None imports it at the first reading.
    """

    def __init__(
        self,
        device_uuid: str,
        known_total_bytes: int | None = None,
        stand_in: MemoryProbe | None = None,
        nvml: ModuleType | None = None,
    ) -> None:
        if not device_uuid.startswith(("GPU-", "MIG-")):
            raise PolicyError(
                f"device UUID must start with 'GPU-' or 'MIG-', got {device_uuid!r}; "
                "take it from the framework's device properties"
            )
        self._device_uuid = device_uuid
        self._known_total_bytes = known_total_bytes
        self._stand_in = stand_in
        self._nvml = nvml
        self._handle: object | None = None

    def read(self) -> MemoryReading:
        """Return a reading; what goes wrong is in it, and nothing is raised."""
        reading = self._asked()
        if self._stand_in is None or reading.trouble not in _STOOD_IN_FOR:
            return reading
        # Its numbers count, and the trouble stays with them, for whoever looks.
        other = self._stand_in.read()
        return replace(
            reading,
            total_bytes=other.total_bytes,
            free_bytes=other.free_bytes,
        )

    def _asked(self) -> MemoryReading:
        try:
            nvml = self._nvml = self._nvml or importlib.import_module("pynvml")
        except ImportError:
            return MemoryReading(trouble=MemoryTrouble.ABSENT)
        try:
            if self._handle is None:
                nvml.nvmlInit()
                self._handle = nvml.nvmlDeviceGetHandleByUUID(self._device_uuid)
            memory = _memory(nvml, self._handle)
        except nvml.NVMLError as error:
            # A handle does not outlive a reset or a restart of the driver: ask anew next time.
            self._handle = None
            trouble = _TROUBLES.get(type(error).__name__, MemoryTrouble.FAILED)
            return MemoryReading(trouble=trouble)
        reasons = _clock_reasons(nvml, self._handle)
        is_throttled = any(reasons & getattr(nvml, name) for name in _THROTTLE_REASONS)
        is_idle = reasons & nvml.nvmlClocksThrottleReasonGpuIdle
        # An idle device lowers its clock of its own accord.
        clock_mhz = None if is_idle else _clock_mhz(nvml, self._handle)
        reading = MemoryReading(memory.total, memory.free, None, is_throttled, clock_mhz)
        return _plausible(reading, self._known_total_bytes)


_STOOD_IN_FOR = (
    MemoryTrouble.ABSENT,
    MemoryTrouble.REFUSED,
    MemoryTrouble.UNSUPPORTED,
    MemoryTrouble.IMPLAUSIBLE,
)


def _memory(nvml: ModuleType, handle: object):
    """Return the driver's memory, in the form that leaves out its own reserve where it can."""
    try:
        return nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_ArgumentVersionMismatch):
        return nvml.nvmlDeviceGetMemoryInfo(handle)


def _clock_reasons(nvml: ModuleType, handle: object) -> int:
    """Return what the device says keeps its clock down; a slice cannot say."""
    try:
        return nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    except nvml.NVMLError:
        return 0


def _clock_mhz(nvml: ModuleType, handle: object) -> int | None:
    try:
        return nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
    except nvml.NVMLError:
        return None


def _plausible(reading: MemoryReading, known_total_bytes: int | None) -> MemoryReading:
    """Return the reading, or that it cannot be true."""
    total, free = reading.total_bytes or 0, reading.free_bytes
    is_whole = total > 0 and free is not None and 0 <= free <= total
    is_ours = known_total_bytes is None or total <= known_total_bytes * (1.0 + _TOTAL_TOLERANCE)
    if is_whole and is_ours:
        return reading
    return replace(reading, total_bytes=None, free_bytes=None, trouble=MemoryTrouble.IMPLAUSIBLE)

"""One reading of device memory, and why there is none."""

from dataclasses import dataclass, replace
from enum import StrEnum

# Below this share of the clock that step times were measured at, they do not hold any more.
_FULL_CLOCK_SHARE = 0.9


class MemoryTrouble(StrEnum):
    """Why a reading says nothing.

    ``absent``: this machine has no such device or no driver library; there is nothing to guard.
    ``refused``: the driver does not tell this process. ``unsupported``: it does not know, as with
    memory shared between device and machine. ``lost``: the device fell off the bus.
    ``implausible``: the numbers contradict each other or the device. ``failed``: anything else.
    """

    ABSENT = "absent"
    REFUSED = "refused"
    UNSUPPORTED = "unsupported"
    LOST = "lost"
    IMPLAUSIBLE = "implausible"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Memory of the device a replica runs on.

    Attributes:
        total_bytes: All of it; None where nothing is known.
        free_bytes: What could be taken; None where nothing is known, which is not 0.
        trouble: Why the device itself did not say; a stand-in may have.
        is_throttled: The device runs below its clock, so step times measured before do not hold.
        clock_mhz: Its clock, MHz; None where it is not told, or where the device idles.
    """

    total_bytes: int | None = None
    free_bytes: int | None = None
    trouble: MemoryTrouble | None = MemoryTrouble.ABSENT
    is_throttled: bool = False
    clock_mhz: int | None = None

    @property
    def free_fraction(self) -> float | None:
        """Share that is free; None where nothing is known."""
        if self.total_bytes is None or self.free_bytes is None:
            return None
        return self.free_bytes / self.total_bytes

    def against(self, profiled_mhz: int | None) -> "MemoryReading":
        """Return it as throttled where the clock is well below the one of the profile, too.

        A lowered power cap or a clock that somebody set is no fault, so no driver reports one.

        Args:
            profiled_mhz: The clock while step times were measured, MHz; None where nobody knows.
        """
        if profiled_mhz is None or self.clock_mhz is None:
            return self
        is_slow = self.clock_mhz < _FULL_CLOCK_SHARE * profiled_mhz
        return replace(self, is_throttled=self.is_throttled or is_slow)

"""What the co-tenant and the driver do, one act after another."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.rigs.nvml_shim import NvmlError

CLOCK_MHZ = 1980
# Between releases, and before what was released comes back: short, to see all of it in a minute.
ESCALATE_S, RESTORE_S = 1.5, 2.0
_CALM: Mapping[str, int] = {
    "cotenant": 0,
    "memory_error": NvmlError.NONE,
    "lied_free": -1,
    "reasons": 0,
    "clock_mhz": CLOCK_MHZ,
}


@dataclass(frozen=True, slots=True)
class Act:
    """One stretch of time.

    Attributes:
        name: What happens, for people.
        seconds: How long.
        left_fraction: Share of the device that the co-tenant leaves free as the act begins; None
            where it holds nothing.
        device: What else the device says, as `NvmlShim.script` takes it.
        is_pinned: An operator wants the heaviest drafter, so that nothing but memory can take it
            away; else the policy is free.
    """

    name: str
    seconds: float
    left_fraction: float | None = None
    device: Mapping[str, int] = field(default_factory=dict)
    is_pinned: bool = False

    def script(self, total_bytes: int, own_bytes: int) -> dict[str, int]:
        """Return what the device says from now on.

        Args:
            total_bytes: Its memory.
            own_bytes: What the replica holds as the act begins.
        """
        taken = 0
        if self.left_fraction is not None:
            taken = max(0, int(total_bytes * (1.0 - self.left_fraction)) - own_bytes)
        return {**_CALM, "cotenant": taken, **self.device}


def acts(total_bytes: int) -> tuple[Act, ...]:
    """Return the acts: each trouble is followed by calm that is long enough to undo it.

    Args:
        total_bytes: The device's memory, to lie about.
    """
    lie = {"lied_free": 2 * total_bytes}
    return (
        Act("holds nothing", 6.0, is_pinned=True),
        Act("takes some", 4.0, 0.01, is_pinned=True),
        Act("gives it back", 12.0, is_pinned=True),
        Act("takes all", 4.0, 0.0, is_pinned=True),
        Act("takes what was given up, too", 4.0, 0.0, is_pinned=True),
        Act("gives all back", 23.0, is_pinned=True),
        Act("is gone, and so is the device", 4.0, device={"memory_error": NvmlError.GPU_IS_LOST}),
        Act("the device answers again", 6.0),
        Act("memory is not supported", 4.0, device={"memory_error": NvmlError.NOT_SUPPORTED}),
        Act("more is free than there is", 4.0, device=lie),
        Act("the clock drops", 4.0, device={"reasons": 0x8, "clock_mhz": CLOCK_MHZ // 3}),
        Act("holds nothing again", 2.0),
    )

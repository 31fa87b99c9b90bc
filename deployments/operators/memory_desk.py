"""Where a replica's memory is now, by component; the parts sum to the device's total."""

import os
from collections.abc import Callable, Sequence
from typing import Protocol

from deployments.operators.report import MemoryReport
from dflash.memory import MemoryPlan
from dflash.stats import EngineCounts
from policy.readings import MemoryReading


class Held(Protocol):
    """A drafter whose weights may be gone for now."""

    context_bytes: int
    weights_bytes: int

    @property
    def is_held(self) -> bool:
        """Whether its weights are in memory."""
        ...


class MemoryDesk:
    """Joins what the engine planned, what its drafters hold and what the device says."""

    def __init__(
        self,
        plan: MemoryPlan,
        drafters: Sequence[Held],
        reading: Callable[[], MemoryReading],
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare.

        Args:
            plan: What was planned as the engine was loaded.
            drafters: Those that were loaded.
            reading: Returns the newest reading of the device, at once.
            stop: Ends what reads; nothing where somebody else does.
        """
        self._plan, self._drafters, self._reading = plan, tuple(drafters), reading
        self._stop = stop

    def stop(self) -> None:
        """End what reads the device."""
        self._stop()

    def report(self, counts: EngineCounts) -> MemoryReport:
        """Return where the memory is.

        Pages are reserved, and memory that is reserved but was never written is not in use to the
        device. It counts as taken here, for it is promised: headroom is what nobody was promised.

        Args:
            counts: Has the pages that are in use.
        """
        plan, reading = self._plan, self._reading()
        page_bytes = plan.kv_reserved_bytes // max(1, plan.num_pages)
        used_bytes = (counts.num_pages_used + counts.num_pages_cached) * page_bytes
        held = [drafter for drafter in self._drafters if drafter.is_held]
        ours = {
            "weights": plan.weights_bytes,
            "drafter_weights": sum(drafter.weights_bytes for drafter in held),
            "kv_used": used_bytes,
            "kv_free": plan.kv_reserved_bytes - used_bytes,
            "drafter_kv": sum(drafter.context_bytes for drafter in held),
        }
        known = sum(ours.values())
        total_bytes, free_bytes = reading.total_bytes, reading.free_bytes
        if total_bytes is None or free_bytes is None:
            # What was in use beside it as it was loaded is the last that is known.
            total_bytes = plan.total_bytes
            other = plan.other_bytes + plan.activation_peak_bytes
        else:
            other = max(0, total_bytes - free_bytes - known)
        parts = {**ours, "other": other, "headroom": total_bytes - known - other}
        return MemoryReport(
            parts, total_bytes, _resident_bytes(), reading.trouble and str(reading.trouble)
        )


def _resident_bytes() -> int:
    """Return what this process holds of the machine's memory; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0

"""The newest reading of device memory, taken in a thread of its own and never in a step."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from policy.readings import MemoryReading, MemoryTrouble
from policy.vram import MemoryProbe

_INTERVAL_S = 0.25
# A driver that hangs holds the thread that asked it. What it said before counts for so long,
# seconds, and then nothing is known.
_FRESH_S = 2.0
_STOP_S = 1.0

logger = logging.getLogger(__name__)


class MemoryWatch:
    """Asks a probe a few times a second; whoever decides takes the newest answer without waiting.

    Nothing that a probe does is raised here: it becomes a reading with its trouble.
    """

    def __init__(
        self,
        probe: MemoryProbe,
        reusable_bytes: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
        interval_s: float = _INTERVAL_S,
        profiled_mhz: int | None = None,
    ) -> None:
        """Prepare to watch.

        Args:
            probe: Whom to ask.
            reusable_bytes: What this process holds and could use again without asking the device.
                A framework keeps what was freed, so that to the driver it stays in use, and
                without this memory would look short for good once it was.
            clock: Tells the time, seconds.
            interval_s: Between two questions, seconds.
            profiled_mhz: The device's clock while step times were measured, MHz; None where
                nobody knows. One well below it makes them doubtful, and takes no memory away.
        """
        self._probe = probe
        self._reusable_bytes = reusable_bytes
        self._clock = clock
        self._interval_s = interval_s
        self._profiled_mhz = profiled_mhz
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep_reading, name="memory-watch", daemon=True)
        self._told = ""
        # One value, replaced whole: nobody sees the time of one reading and the bytes of another.
        self._newest = (clock(), MemoryReading(trouble=MemoryTrouble.FAILED))

    @property
    def latest(self) -> MemoryReading:
        """The newest reading; waits for nobody."""
        read_at_s, reading = self._newest
        if self._clock() - read_at_s > _FRESH_S + self._interval_s:
            return MemoryReading(trouble=MemoryTrouble.FAILED)
        return reading

    def start(self) -> None:
        """Take a first reading here, so that nobody decides without one, and begin to watch."""
        self._read()
        self._thread.start()

    def stop(self) -> None:
        """End the thread; one that a driver holds is left behind and ends with the process."""
        self._is_stopped.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def _keep_reading(self) -> None:
        while not self._is_stopped.wait(self._interval_s):
            self._read()

    def _read(self) -> None:
        try:
            reading = _with_reusable(self._probe.read(), self._reusable_bytes)
            reading = reading.against(self._profiled_mhz)
            state = f"{reading.trouble}, throttled: {reading.is_throttled}"
            # Figures change with each reading; what is told is that there are some, or why not.
            if state != self._told:
                is_well = reading.trouble is None and not reading.is_throttled
                level = logging.INFO if is_well else logging.WARNING
                logger.log(level, "device memory: %s", _sentence(reading))
        # Whatever a driver's package raises, an engine that serves is worth more than a reading.
        except Exception as error:
            reading = MemoryReading(trouble=MemoryTrouble.FAILED)
            state = repr(error)
            if state != self._told:
                logger.warning("device memory cannot be read: %s", state, exc_info=True)
        self._newest = (self._clock(), reading)
        self._told = state


def _with_reusable(reading: MemoryReading, reusable_bytes: Callable[[], int]) -> MemoryReading:
    if reading.total_bytes is None or reading.free_bytes is None:
        return reading
    free_bytes = min(reading.total_bytes, reading.free_bytes + reusable_bytes())
    return replace(reading, free_bytes=free_bytes)


def _sentence(reading: MemoryReading) -> str:
    if reading.is_throttled:
        clock = "" if reading.clock_mhz is None else f" ({reading.clock_mhz} MHz)"
        slow = f"the device runs below its clock{clock}: measured step times are doubted"
        return f"{_sentence(replace(reading, is_throttled=False))}; {slow}"
    trouble = f"the device says nothing of use ({reading.trouble})"
    if reading.total_bytes is None or reading.free_bytes is None:
        return trouble
    figures = f"{reading.free_bytes >> 20} of {reading.total_bytes >> 20} MiB are free"
    return figures if reading.trouble is None else f"{trouble}; what stands in for it: {figures}"

"""The newest reading of memory: taken beside the steps, whatever the driver does."""

import logging
import threading
from dataclasses import replace

import pytest

from deployments.memory_watch import MemoryWatch
from policy.governor import Governor, MemoryLevel, Pressure
from policy.limits import MemoryLimits
from policy.readings import MemoryReading, MemoryTrouble

GIB = 1 << 30
FREE = MemoryReading(140 * GIB, 70 * GIB, None)
SOON_S = 10.0


class ScriptedProbe:
    """Answers from a script and says how often it was asked; the last answer stays."""

    def __init__(self, *answers: MemoryReading | Exception) -> None:
        self._answers = list(answers)
        self._asked = threading.Semaphore(0)
        self.threads: set[threading.Thread] = set()

    def read(self) -> MemoryReading:
        self.threads.add(threading.current_thread())
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        self._asked.release()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def say(self, answer: MemoryReading) -> None:
        """Answer so from now on; return when it was heard."""
        self._answers = [answer]
        while self._asked.acquire(blocking=False):
            pass
        # The first may have been asked before, and the one before the last is entered by then.
        self.was_asked(3)

    def was_asked(self, times: int) -> None:
        for _ in range(times):
            assert self._asked.acquire(timeout=SOON_S)


@pytest.fixture
def watching():
    watches: list[MemoryWatch] = []

    def start(probe, **options) -> MemoryWatch:
        watches.append(MemoryWatch(probe, interval_s=0.001, **options))
        watches[-1].start()
        return watches[-1]

    yield start
    for watch in watches:
        watch.stop()


def test_there_is_a_reading_as_soon_as_it_has_started(watching):
    assert watching(ScriptedProbe(FREE)).latest == FREE


def test_the_newest_reading_wins_and_comes_from_a_thread_of_its_own(watching):
    taken = MemoryReading(140 * GIB, 1 * GIB, None)
    probe = ScriptedProbe(FREE, FREE, taken)
    watch = watching(probe)
    probe.was_asked(4)
    assert watch.latest == taken
    names = {thread.name for thread in probe.threads}
    assert names == {threading.current_thread().name, "memory-watch"}


@pytest.mark.parametrize("trouble", MemoryTrouble)
def test_each_trouble_is_handed_on_and_the_watch_goes_on(trouble, watching):
    probe = ScriptedProbe(MemoryReading(trouble=trouble))
    watch = watching(probe)
    assert watch.latest.trouble is trouble
    probe.say(FREE)
    assert watch.latest == FREE


@pytest.mark.parametrize("before", [(), (FREE,)], ids=["from the start", "later"])
def test_whatever_a_probe_raises_becomes_a_reading_and_is_logged_once(before, watching, caplog):
    caplog.set_level(logging.WARNING)
    broken = AttributeError("module has no attribute nvmlMemory_v2")
    probe = ScriptedProbe(*before, broken)
    watch = watching(probe)
    probe.was_asked(5)
    assert watch.latest == MemoryReading(trouble=MemoryTrouble.FAILED)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "nvmlMemory_v2" in caplog.text


def test_what_a_framework_keeps_counts_as_free_but_never_over_the_total(watching):
    assert watching(ScriptedProbe(FREE), reusable_bytes=lambda: GIB).latest.free_bytes == 71 * GIB
    assert watching(ScriptedProbe(FREE), reusable_bytes=lambda: 999 * GIB).latest.free_bytes == (
        140 * GIB
    )
    nothing = MemoryReading(trouble=MemoryTrouble.LOST)
    assert watching(ScriptedProbe(nothing), reusable_bytes=lambda: GIB).latest == nothing


def test_a_driver_that_hangs_leaves_nothing_known_and_does_not_hold_the_end_up():
    hangs, held = threading.Event(), threading.Event()
    now_s = 100.0

    class Hanging:
        def read(self) -> MemoryReading:
            if threading.current_thread().name == "memory-watch":
                held.set()
                hangs.wait()
            return FREE

    watch = MemoryWatch(Hanging(), clock=lambda: now_s, interval_s=0.001)
    watch.start()
    assert held.wait(SOON_S)
    assert watch.latest == FREE
    now_s += 3.0
    assert watch.latest == MemoryReading(trouble=MemoryTrouble.FAILED)
    watch.stop()
    hangs.set()


def test_a_clock_well_below_the_profiled_one_is_seen_told_and_takes_no_memory(watching, caplog):
    caplog.set_level(logging.INFO)
    probe = ScriptedProbe(replace(FREE, clock_mhz=1980))
    watch = watching(probe, profiled_mhz=1980)
    for clock_mhz, is_throttled in ((1980, False), (1900, False), (1400, True)):
        probe.say(replace(FREE, clock_mhz=clock_mhz))
        assert watch.latest.is_throttled is is_throttled
    assert caplog.text.count("below its clock (1400 MHz)") == 1
    governor = Governor().after(Pressure(reading=watch.latest), MemoryLimits(), 1.0)
    assert governor == Governor().after(Pressure(reading=FREE), MemoryLimits(), 1.0)


def test_after_it_was_stopped_nobody_is_asked_any_more(watching):
    probe = ScriptedProbe(FREE)
    watch = watching(probe)
    probe.was_asked(3)
    (asking,) = probe.threads - {threading.current_thread()}
    watch.stop()
    assert not asking.is_alive()


def test_a_watch_that_never_started_knows_nothing_and_can_be_stopped():
    watch = MemoryWatch(ScriptedProbe(FREE))
    assert watch.latest.free_fraction is None
    watch.stop()


def test_a_driver_that_fails_for_long_ends_on_the_safe_side_and_not_at_0_used(watching):
    probe = ScriptedProbe(FREE, RuntimeError("driver"))
    watch = watching(probe)
    governor = Governor().after(Pressure(reading=FREE), MemoryLimits(), 0.0)
    probe.was_asked(3)
    levels = []
    for now_s in range(1, 14):
        governor = governor.after(Pressure(reading=watch.latest), MemoryLimits(), float(now_s))
        levels.append(governor.level)
    assert levels == [MemoryLevel.GREEN] * 9 + [MemoryLevel.AMBER] * 4

"""Device memory: each thing that a driver can do has its defined answer, and nothing is raised."""

from types import SimpleNamespace

import pytest

from policy.errors import PolicyError
from policy.readings import MemoryReading, MemoryTrouble
from policy.vram import NvmlProbe, StandInProbe

GIB = 1 << 30
UUID = "GPU-0f5fe1ad-0000-0000-0000-000000000000"


class FakeNvml:
    """The driver's module, scripted: memory, the error it raises, and what it was asked."""

    nvmlMemory_v2 = 2  # noqa: N815 - the driver's own name
    NVML_CLOCK_SM = 1
    nvmlClocksThrottleReasonGpuIdle = 1  # noqa: N815
    nvmlClocksThrottleReasonHwSlowdown = 8  # noqa: N815
    nvmlClocksThrottleReasonSwThermalSlowdown = 32  # noqa: N815
    nvmlClocksThrottleReasonHwThermalSlowdown = 64  # noqa: N815
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 128  # noqa: N815

    def __init__(self, total: int = 141 * GIB, free: int = 100 * GIB) -> None:
        self.NVMLError = type("NVMLError", (Exception,), {})
        self.NVMLError_FunctionNotFound = self.kind("FunctionNotFound")
        self.NVMLError_ArgumentVersionMismatch = self.kind("ArgumentVersionMismatch")
        self.total, self.free = total, free
        self.error: str | None = None
        self.knows_v2 = True
        self.throttled: int | None = 0
        self.clock_mhz: int | None = 1980
        self.asked: list[str] = []

    def kind(self, name: str) -> type[Exception]:
        return type(f"NVMLError_{name}", (self.NVMLError,), {})

    def _fail(self) -> None:
        if self.error is not None:
            raise self.kind(self.error)

    def nvmlInit(self) -> None:  # noqa: N802
        self.asked.append("init")
        self._fail()

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        return f"handle of {uuid}"

    def nvmlDeviceGetMemoryInfo(self, handle: str, version: int = 0):  # noqa: N802
        assert handle == f"handle of {UUID}"
        self._fail()
        if version and not self.knows_v2:
            raise self.NVMLError_FunctionNotFound
        return SimpleNamespace(total=self.total, free=self.free)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:  # noqa: N802
        if self.throttled is None:
            raise self.kind("NotSupported")
        return self.throttled

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:  # noqa: N802
        if self.clock_mhz is None:
            raise self.kind("NotSupported")
        return self.clock_mhz


def probe(fake: FakeNvml, **options) -> NvmlProbe:
    return NvmlProbe(UUID, nvml=fake, **options)


@pytest.mark.parametrize("knows_v2", [True, False])
def test_a_device_that_answers_is_believed(knows_v2):
    fake = FakeNvml()
    fake.knows_v2 = knows_v2
    assert probe(fake).read() == MemoryReading(141 * GIB, 100 * GIB, None, clock_mhz=1980)


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        ("LibraryNotFound", MemoryTrouble.ABSENT),
        ("DriverNotLoaded", MemoryTrouble.ABSENT),
        ("LibRmVersionMismatch", MemoryTrouble.ABSENT),
        ("NotFound", MemoryTrouble.ABSENT),
        ("NoPermission", MemoryTrouble.REFUSED),
        ("NotSupported", MemoryTrouble.UNSUPPORTED),
        ("GpuIsLost", MemoryTrouble.LOST),
        ("Uninitialized", MemoryTrouble.FAILED),
        ("Unknown", MemoryTrouble.FAILED),
    ],
)
def test_each_error_of_the_driver_has_its_answer_and_is_never_0_used(error, trouble):
    fake = FakeNvml()
    fake.error = error
    reading = probe(fake).read()
    assert (reading.total_bytes, reading.free_bytes, reading.trouble) == (None, None, trouble)
    assert reading.free_fraction is None


def test_a_device_is_asked_anew_after_an_error():
    fake = FakeNvml()
    asking = probe(fake)
    fake.error = "GpuIsLost"
    asking.read()
    fake.error = None
    assert asking.read().trouble is None
    assert fake.asked == ["init", "init"]


@pytest.mark.parametrize(
    ("total", "free"), [(0, 0), (10, 11), (10, -1)], ids=["none", "more free than all", "negative"]
)
def test_numbers_that_contradict_each_other_are_not_believed(total, free):
    assert probe(FakeNvml(total, free)).read().trouble is MemoryTrouble.IMPLAUSIBLE


def test_a_slice_that_is_told_its_parents_memory_is_not_believed():
    parent = FakeNvml(141 * GIB, 100 * GIB)
    stand_in = StandInProbe(lambda: (16 * GIB, 4 * GIB))
    assert probe(parent, known_total_bytes=16 * GIB).read().free_bytes is None
    reading = probe(parent, known_total_bytes=16 * GIB, stand_in=stand_in).read()
    assert (reading.total_bytes, reading.free_bytes) == (16 * GIB, 4 * GIB)
    assert reading.trouble is MemoryTrouble.IMPLAUSIBLE


@pytest.mark.parametrize("error", ["NotSupported", "NoPermission", "LibraryNotFound"])
def test_unified_memory_refusal_and_no_driver_are_answered_by_the_stand_in(error):
    fake = FakeNvml()
    fake.error = error
    reading = probe(fake, stand_in=StandInProbe(lambda: (128 * GIB, 32 * GIB))).read()
    assert reading.free_fraction == 0.25


def test_a_lost_device_is_not_papered_over():
    fake = FakeNvml()
    fake.error = "GpuIsLost"
    reading = probe(fake, stand_in=StandInProbe(lambda: (128 * GIB, 32 * GIB))).read()
    assert reading.free_fraction is None


def test_without_the_drivers_package_there_is_no_device(monkeypatch):
    def absent(name: str):
        raise ImportError(name)

    monkeypatch.setattr("policy.vram.importlib.import_module", absent)
    assert NvmlProbe(UUID).read().trouble is MemoryTrouble.ABSENT


def test_a_stand_in_that_fails_says_nothing():
    def fails() -> tuple[int, int]:
        raise OSError("no such file")

    assert StandInProbe(fails).read() == MemoryReading(trouble=MemoryTrouble.FAILED)


@pytest.mark.parametrize(("reasons", "is_throttled"), [(0, False), (64, True), (4, False)])
def test_a_device_below_its_clock_says_so(reasons, is_throttled):
    fake = FakeNvml()
    fake.throttled = reasons
    assert probe(fake).read().is_throttled is is_throttled


def test_a_slice_that_cannot_tell_its_clock_still_tells_its_memory():
    fake = FakeNvml()
    fake.throttled = fake.clock_mhz = None
    assert probe(fake).read() == MemoryReading(141 * GIB, 100 * GIB, None)


def test_a_device_that_tells_no_clock_still_tells_that_it_is_held_back():
    fake = FakeNvml()
    fake.throttled, fake.clock_mhz = 64, None
    reading = probe(fake).read()
    assert (reading.is_throttled, reading.clock_mhz) == (True, None)


def test_the_low_clock_of_an_idle_device_says_nothing():
    fake = FakeNvml()
    fake.throttled, fake.clock_mhz = 1, 345
    reading = probe(fake).read()
    assert (reading.is_throttled, reading.clock_mhz) == (False, None)


@pytest.mark.parametrize(
    ("clock_mhz", "profiled_mhz", "is_throttled"),
    [
        (1980, 1980, False),
        (1783, 1980, False),
        (1781, 1980, True),
        (300, None, False),
        (None, 1980, False),
    ],
)
def test_a_clock_below_nine_tenths_of_the_profiles_counts_as_throttled(
    clock_mhz, profiled_mhz, is_throttled
):
    reading = MemoryReading(10, 5, None, clock_mhz=clock_mhz)
    assert reading.against(profiled_mhz).is_throttled is is_throttled


def test_a_throttled_device_stays_so_at_any_clock():
    assert MemoryReading(10, 5, None, is_throttled=True, clock_mhz=1980).against(1980).is_throttled


def test_an_index_is_no_uuid():
    with pytest.raises(PolicyError, match="GPU-"):
        NvmlProbe("0")

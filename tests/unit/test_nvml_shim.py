"""The real `pynvml` over a scripted driver: what comes out of a machine with a device."""

import importlib.util
from itertools import pairwise

import pytest

from benchmarks.rigs.nvml_shim import NvmlError, NvmlShim, compiled_shim, compiler
from policy.governor import Governor, MemoryLevel, Pressure, Release
from policy.limits import MemoryLimits
from policy.readings import MemoryReading, MemoryTrouble
from tests.rigs.reading_process import ReadingProcess

pytestmark = [
    pytest.mark.skipif(compiler() is None, reason="no C compiler: cc, gcc or clang"),
    pytest.mark.skipif(
        importlib.util.find_spec("pynvml") is None, reason="nvidia-ml-py is not installed"
    ),
]

GIB = 1 << 30
TOTAL, RESERVED = 141 * GIB, 1 * GIB


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled_shim(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def shim(library, tmp_path) -> NvmlShim:
    shim = NvmlShim(library, tmp_path, total=TOTAL, reserved=RESERVED, clock_mhz=1980)
    shim.hold(100 * GIB)
    return shim


@pytest.fixture
def reading(shim):
    process = ReadingProcess(shim)
    yield process.read
    process.close()


def test_the_replica_and_a_co_tenant_share_what_the_driver_leaves(shim, reading):
    assert reading() == MemoryReading(TOTAL, 40 * GIB, None, clock_mhz=1980)
    shim.script(cotenant=30 * GIB)
    assert reading().free_bytes == 10 * GIB
    shim.hold(90 * GIB)
    assert reading().free_bytes == 20 * GIB
    shim.script(cotenant=200 * GIB)
    assert reading().free_bytes == 0


@pytest.mark.parametrize(
    "error", [NvmlError.FUNCTION_NOT_FOUND, NvmlError.ARGUMENT_VERSION_MISMATCH]
)
def test_an_old_driver_is_asked_in_its_own_form(error, shim, reading):
    shim.script(v2_error=error)
    assert reading() == MemoryReading(TOTAL, 40 * GIB, None, clock_mhz=1980)


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (NvmlError.NOT_SUPPORTED, MemoryTrouble.UNSUPPORTED),
        (NvmlError.NO_PERMISSION, MemoryTrouble.REFUSED),
        (NvmlError.GPU_IS_LOST, MemoryTrouble.LOST),
        (NvmlError.UNINITIALIZED, MemoryTrouble.FAILED),
        (NvmlError.UNKNOWN, MemoryTrouble.FAILED),
    ],
)
def test_each_error_of_a_reading_has_its_answer_and_passes(error, trouble, shim, reading):
    assert reading().trouble is None
    shim.script(memory_error=error)
    assert reading() == reading() == MemoryReading(trouble=trouble)
    shim.script(memory_error=NvmlError.NONE)
    assert reading().free_bytes == 40 * GIB


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (NvmlError.DRIVER_NOT_LOADED, MemoryTrouble.ABSENT),
        (NvmlError.LIB_RM_VERSION_MISMATCH, MemoryTrouble.ABSENT),
        (NvmlError.NO_PERMISSION, MemoryTrouble.REFUSED),
    ],
)
def test_a_driver_that_does_not_start_is_asked_again_and_may_start_later(
    error, trouble, shim, reading
):
    shim.script(init_error=error)
    assert reading() == MemoryReading(trouble=trouble)
    shim.script(init_error=NvmlError.NONE)
    assert reading().trouble is None


def test_a_device_of_another_name_is_none(shim, reading):
    shim.script(uuid="GPU-another")
    assert reading().trouble is MemoryTrouble.ABSENT


def test_a_machine_without_the_library_has_no_device(shim, tmp_path_factory):
    nowhere = NvmlShim(tmp_path_factory.mktemp("empty"), tmp_path_factory.mktemp("unread"))
    process = ReadingProcess(nowhere)
    assert process.read().trouble is MemoryTrouble.ABSENT
    process.close()


def test_a_slice_that_is_told_its_parents_memory_is_not_believed(shim):
    process = ReadingProcess(shim, known_total_bytes=16 * GIB)
    assert process.read().trouble is MemoryTrouble.IMPLAUSIBLE
    process.close()


def test_more_free_than_there_is_is_not_believed(shim, reading):
    shim.script(lied_free=TOTAL + 1)
    assert reading().trouble is MemoryTrouble.IMPLAUSIBLE


def test_clocks_and_what_holds_them_back_come_through(shim, reading):
    shim.script(reasons=0x40, clock_mhz=1200)
    assert (reading().is_throttled, reading().clock_mhz) == (True, 1200)
    shim.script(reasons=0x4)
    assert not reading().is_throttled
    assert reading().against(1980).is_throttled
    shim.script(reasons=0x1, clock_mhz=345)
    assert reading().clock_mhz is None
    shim.script(clock_error=NvmlError.NOT_SUPPORTED, reasons=0x40)
    assert reading() == MemoryReading(TOTAL, 40 * GIB, None)


# What a replica holds, and what of it a release gives up.
OTHERS_BYTES, CONTEXT_BYTES, WEIGHTS_BYTES = 119 * GIB, 8 * GIB, 4 * GIB


def test_what_a_release_frees_is_seen_and_is_not_taken_back_too_soon(shim, reading):
    """Closed loop: the governor reads the device that its own releases change."""
    governor, seen = Governor(), []
    for now_s in range(0, 1000, 5):
        release = governor.release
        held = OTHERS_BYTES
        held += CONTEXT_BYTES if release < Release.CONTEXT_PAGES else 0
        held += WEIGHTS_BYTES if release < Release.WEIGHTS else 0
        shim.hold(held)
        shim.script(cotenant=int(8.5 * GIB) if 50 <= now_s < 700 else 0)
        needed = {Release.CONTEXT_PAGES: CONTEXT_BYTES, Release.WEIGHTS: WEIGHTS_BYTES}
        pressure = Pressure(reading=reading(), restore_bytes=needed.get(release, 0))
        governor = governor.after(pressure, MemoryLimits(), float(now_s))
        seen.append((now_s, governor.level, governor.release))
    changes = [now for last, now in pairwise(seen) if now[2] is not last[2]]
    assert [(now_s, release) for now_s, _, release in changes[:3]] == [
        (50, Release.DRAFTING),
        (80, Release.CONTEXT_PAGES),
        (755, Release.DRAFTING),
    ]
    # The pages it gave up are what made memory green while the co-tenant stayed.
    assert (85, MemoryLevel.GREEN, Release.CONTEXT_PAGES) in seen
    assert seen[-1][1:] == (MemoryLevel.GREEN, Release.NOTHING)

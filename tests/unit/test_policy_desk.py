"""A replica's policy with its orders: what is obeyed, what is refused, what is kept."""

import re
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest

from benchmarks.rigs.made_up_times import step_times
from deployments import explain, replay
from deployments.observation import Surroundings
from deployments.policy_desk import Holdings, PolicyDesk
from dflash.errors import ConfigError
from dflash.plan import Decoding, PlanSignals
from dflash.stats import EngineCounts, StepStats
from policy.governor import Release
from policy.limits import Limits
from policy.readings import MemoryReading
from policy.vram import NvmlProbe, StandInProbe

ALWAYS = "2999-01-01T00:00:00Z"
OVER = "2020-01-01T00:00:00Z"
PIN = {"arm": "mtp:2", "replicas": ["*"], "author": "ada", "reason": "why not", "expires": ALWAYS}
LIMITED = {"policy": {"max_concurrency": {"dflash2": 2}}}


class Clock:
    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def free() -> list[int]:
    return [900]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def desk(free: list[int], clock: Clock):
    probe = StandInProbe(lambda: (1000, free[0]))
    desk = PolicyDesk(step_times(), probe, "a", Holdings(100, 200), clock=clock)
    desk.start()
    yield desk
    desk.stop()


def steps(desk: PolicyDesk, clock: Clock, count: int, rows: int = 1) -> None:
    decoding = tuple(Decoding(str(index), 20) for index in range(rows))
    for _ in range(count):
        clock.now_s += 0.03
        last = StepStats(num_decoding=rows, step_time_s=0.01, num_emitted_tokens=rows)
        desk.planner.plan(
            PlanSignals(EngineCounts(rows, 0, 0, 1, 0, 100), decoding, last, {}, max_num_seqs=8)
        )


def test_orders_are_obeyed_from_the_next_decision_on(desk, clock):
    desk.take_orders({**LIMITED, "pins": [PIN]}, ())
    steps(desk, clock, 9)
    status = desk.status()
    assert (status.arm, status.reason, status.pinned_by) == ("mtp:2", "pinned", "ada")
    assert status.max_concurrency == {"dflash2": 2}
    desk.take_orders(None, ())
    steps(desk, clock, 9)
    assert desk.status().pinned_by is None
    assert desk.planner.surroundings.limits == Limits()


@pytest.mark.parametrize(
    ("user_config", "said"),
    [
        ({"policy": {"max_concurrency": {"eagle": 2}}}, "eagle"),
        ({"policy": {"dwell": 2.0}}, "Did you mean dwell_s?"),
        ({"pins": [{**PIN, "arm": "mtp:9"}]}, "no such rung"),
        ({"pins": [{**PIN, "replicas": ["z"]}]}, "No such replica. There are a, b"),
        ({"pins": [{**PIN, "expires": OVER}]}, "It is over already"),
    ],
)
def test_an_order_that_cannot_work_is_refused_and_those_before_stay(desk, user_config, said):
    desk.take_orders(LIMITED, ("b",))
    before = desk.planner.surroundings
    with pytest.raises(ConfigError, match=re.escape(said)):
        desk.take_orders(user_config, ("b",))
    assert desk.planner.surroundings is before


def test_a_pin_that_has_lapsed_costs_a_starting_replica_nothing(desk, caplog):
    desk.take_orders({**LIMITED, "pins": [{**PIN, "expires": OVER}]}, ())
    assert desk.planner.surroundings.limits.max_concurrency == {"dflash2": 2}
    assert not desk.planner.surroundings.pins
    assert "ended at" in caplog.text


def test_orders_to_a_replica_in_service_are_read_strictly_from_the_first_on(desk):
    desk.serve()
    unknown, over = {**PIN, "replicas": ["z"]}, {**PIN, "expires": OVER}
    for pin, said in ((unknown, "No such replica"), (over, "It is over already")):
        with pytest.raises(ConfigError, match=said):
            desk.take_orders({"pins": [pin]}, ())
    assert desk.planner.surroundings == Surroundings()


def test_a_clock_below_the_one_of_the_step_times_is_shown_and_gives_up_no_memory(clock):
    times = replace(step_times(), clock_mhz=1980)
    probe = SlowingProbe()
    desk = PolicyDesk(times, probe, "a", clock=clock)
    desk.start()
    try:
        steps(desk, clock, 40)
        assert not desk.status().is_throttled
        arm = desk.status().arm
        probe.clock_mhz = 990
        desk._watch._read()
        steps(desk, clock, 40)
        status = desk.status()
        assert (status.is_throttled, status.memory, status.release) == (True, "green", "nothing")
        assert status.arm == arm
    finally:
        desk.stop()


class SlowingProbe:
    """A device with room, whose clock a test may lower."""

    clock_mhz = 1980

    def read(self) -> MemoryReading:
        return MemoryReading(1000, 900, None, clock_mhz=self.clock_mhz)


def test_decisions_are_kept(desk, clock):
    steps(desk, clock, 40)
    entries = desk.record.entries()
    assert entries
    assert entries[-1].arm_to.name == desk.status().arm
    assert desk.record.num_lost == 0


def test_memory_that_is_short_is_seen_and_what_is_released_has_its_size(desk, clock, free):
    free[0] = 1
    # The watch reads a few times a second of its own; the first look after that sees it.
    desk._watch._read()
    steps(desk, clock, 40)
    status = desk.status()
    assert (status.arm, status.memory) == ("plain", "red")
    sources = desk.planner._sources
    assert sources.restore_bytes(Release.CONTEXT_PAGES) == 100
    assert sources.restore_bytes(Release.WEIGHTS) == 200
    assert sources.restore_bytes(Release.DRAFTING) == 0


def test_what_was_recorded_is_decided_again_to_the_bit(tmp_path, clock, capsys):
    probe = StandInProbe(lambda: (1000, 900))
    desk = PolicyDesk(step_times(), probe, "a", record_folder=tmp_path, clock=clock)
    desk.start()
    steps(desk, clock, 60)
    desk.take_orders(LIMITED, ())
    steps(desk, clock, 60, rows=4)
    desk.stop()
    assert replay.main([str(tmp_path / "signals-a.jsonl")]) == 0
    assert "all the same to the bit" in capsys.readouterr().out
    assert explain.main([str(tmp_path / "decisions-a.jsonl")]) == 0
    assert "dflash2" in capsys.readouterr().out


class Broken:
    """A probe that raises whenever it is asked."""

    def read(self):
        raise RuntimeError("the driver's library is not the driver's")


def slice_of_a_larger_device() -> NvmlProbe:
    """Return the probe of a slice whose driver tells the parent's memory."""
    nvml = ModuleType("nvml")
    nvml.NVMLError = RuntimeError
    nvml.nvmlInit = lambda: None
    nvml.nvmlDeviceGetHandleByUUID = lambda _uuid: "parent"
    nvml.nvmlMemory_v2 = 2
    nvml.nvmlDeviceGetMemoryInfo = lambda _handle, **_: SimpleNamespace(total=141, free=140)
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda _handle: 0
    nvml.nvmlClocksThrottleReasonGpuIdle = 1
    for name in ("HwSlowdown", "SwThermalSlowdown", "HwThermalSlowdown", "HwPowerBrakeSlowdown"):
        setattr(nvml, f"nvmlClocksThrottleReason{name}", 2)
    nvml.NVML_CLOCK_SM = 1
    nvml.nvmlDeviceGetClockInfo = lambda _handle, _kind: 1980
    return NvmlProbe("MIG-1", 16, nvml=nvml)


@pytest.mark.parametrize(
    "probe",
    [
        Broken(),
        NvmlProbe("GPU-1", nvml=ModuleType("empty")),
        StandInProbe(lambda: (0, 0)),
        slice_of_a_larger_device(),
    ],
    ids=["raises", "other library", "nothing", "slice"],
)
def test_a_probe_that_is_of_no_use_from_the_start_costs_a_replica_no_drafts(probe, clock):
    desk = PolicyDesk(step_times(), probe, "a", clock=clock)
    desk.start()
    try:
        steps(desk, clock, 40)
        status = desk.status()
        assert desk._watch.latest.total_bytes is None
        assert status.num_errors == 0
        assert status.memory in ("green", "amber")
        assert status.arm != "plain"
    finally:
        desk.stop()

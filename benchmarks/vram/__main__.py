"""``python -m benchmarks.vram``: a replica while a co-tenant takes the device's memory."""

import argparse
import importlib.util
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.machine import GIB
from benchmarks.prompts import chat_token_ids, questions
from benchmarks.report import Options, Result, Table, progress, run_benchmark
from benchmarks.rigs.contest import measured_times
from benchmarks.rigs.nvml_shim import SHIM_UUID, NvmlShim, compiled_shim, compiler
from benchmarks.speculation.lineup import DrafterAbsentError, Lineup, Wanted, load_lineup
from benchmarks.vram.acts import CLOCK_MHZ, ESCALATE_S, RESTORE_S, Act, acts
from benchmarks.vram.load import SteadyLoad, alone, requests_for
from benchmarks.vram.timeline import Loss, Moment, WatchedPolicy, restored_share
from deployments.policy_desk import Holdings, PolicyDesk
from dflash.config import Dtype, EngineConfig, EngineLimits, KVCacheConfig
from dflash.engine import Engine
from dflash.errors import EngineError
from dflash.machine_memory import memory_of_this_machine
from dflash.memory import weights_bytes
from policy.vram import NvmlProbe, StandInProbe

_MEMORY_GIB = 0.25
_MAX_TOKENS = 400
# The device has room for the replica and, free at the end, for this share of it.
_SPARE = 0.2
_ORDERS = {"policy": {"memory": {"escalate_s": ESCALATE_S, "restore_s": RESTORE_S}}}
_PIN = {
    "replicas": ["*"],
    "author": "benchmarks.vram",
    "reason": "what memory takes away is to be seen",
    "expires": "2999-01-01T00:00:00Z",
}


def measure(options: Options) -> Result:
    """Serve a steady load through all acts."""
    why = why_not()
    if why is not None:
        print(f"vram: skipped: {why}")
        sys.exit(0)
    arguments = options.arguments
    num_live, num_rounds = (3, 1) if options.quick else (6, 3)
    try:
        wanted = Wanted(arguments.dtype, arguments.threads, memory_gib=_MEMORY_GIB)
        lineup = load_lineup(wanted)
    except (EngineError, DrafterAbsentError) as error:
        sys.exit(str(error))
    prompts = chat_token_ids(lineup.target.model_folder, questions(num_live + 1, visit=0))
    requests = requests_for(prompts, _MAX_TOKENS)
    expected = alone(lineup.target.runner, requests)
    rest_bytes = _rest_bytes(lineup, arguments)
    holdings = Holdings(
        sum(drafter.context_bytes for drafter in lineup.drafters),
        sum(drafter.weights_bytes for drafter in lineup.drafters),
    )
    own_bytes = rest_bytes + holdings.context_bytes + holdings.weights_bytes
    total_bytes = int(own_bytes * (1.0 + _SPARE))
    with _device(total_bytes) as shim:
        shim.hold(own_bytes)
        desk = _desk(lineup, num_live, total_bytes, holdings)
        drafters = {drafter.facts.name: drafter for drafter in lineup.drafters}
        watched = WatchedPolicy(desk.planner, drafters, rest_bytes, shim)
        engine = Engine(
            lineup.target.runner,
            EngineLimits(max_num_seqs=num_live),
            drafters=lineup.drafters,
            planner=watched,
            prefix_caching=False,
        )
        load = SteadyLoad(engine, requests, expected, num_live)
        desk.start()
        try:
            _play(load, watched, Stage(desk, shim, total_bytes, _pinned_arm(lineup)), num_rounds)
        finally:
            desk.stop()
    return _result(arguments, load, watched, total_bytes, desk.planner.num_errors)


def why_not() -> str | None:
    """Return why this machine cannot stand in for a device; None where it can."""
    if compiler() is None:
        return (
            "the device is a library that is compiled here, and there is no C compiler; "
            "install cc, gcc or clang"
        )
    if importlib.util.find_spec("pynvml") is None:
        return "the driver is asked through pynvml, which is not there; install nvidia-ml-py"
    return None


@contextmanager
def _device(total_bytes: int) -> Iterator[NvmlShim]:
    """Put this process on a machine with one device."""
    with TemporaryDirectory() as library, TemporaryDirectory() as folder:
        shim = NvmlShim(
            compiled_shim(Path(library)), Path(folder), total=total_bytes, clock_mhz=CLOCK_MHZ
        )
        shim.enter()
        if NvmlProbe(SHIM_UUID).read().total_bytes != total_bytes:
            sys.exit(
                "vram: this process has met another driver than the compiled one; run it on its "
                "own, without LD_PRELOAD"
            )
        yield shim


def _desk(lineup: Lineup, num_live: int, total_bytes: int, holdings: Holdings) -> PolicyDesk:
    times = measured_times(lineup, num_live)
    probe = NvmlProbe(SHIM_UUID, total_bytes, StandInProbe(_machine))
    return PolicyDesk(times, probe, "vram", holdings)


def _pinned_arm(lineup: Lineup) -> str:
    """Return the heaviest drafter at its narrowest, which is fast wherever it drafts at all."""
    return f"{lineup.drafters[0].facts.name}:1"


def _machine() -> tuple[int, int]:
    memory = memory_of_this_machine()
    return memory.total_bytes, memory.total_bytes - memory.used_bytes


def _rest_bytes(lineup: Lineup, arguments: argparse.Namespace) -> int:
    """Return what stays whatever is released: the target's weights and its pages."""
    config = EngineConfig(
        dtype=Dtype(arguments.dtype), kv_cache=KVCacheConfig(memory_gib=_MEMORY_GIB)
    )
    return weights_bytes(lineup.target.lender.config, config) + int(_MEMORY_GIB * GIB)


@dataclass(frozen=True, slots=True)
class Stage:
    """Where acts are played.

    Attributes:
        desk: Takes orders.
        shim: The device.
        total_bytes: Its memory.
        pinned_arm: What an operator wants while a pin holds.
    """

    desk: PolicyDesk
    shim: NvmlShim
    total_bytes: int
    pinned_arm: str

    def set_for(self, act: Act, own_bytes: int) -> None:
        """Let an act begin."""
        pins = [{**_PIN, "arm": self.pinned_arm}] if act.is_pinned else []
        self.desk.take_orders({**_ORDERS, "pins": pins}, ())
        self.shim.script(**act.script(self.total_bytes, own_bytes))


def _play(load: SteadyLoad, watched: WatchedPolicy, stage: Stage, num_rounds: int) -> None:
    script = acts(stage.total_bytes) * num_rounds
    with progress(len(script), "acts") as bar:
        for act in script:
            stage.set_for(act, watched.own_bytes)
            watched.act = act.name
            end_s = time.monotonic() + act.seconds
            while time.monotonic() < end_s:
                load.step()
            bar.update()
    load.drain()


def _result(
    arguments: argparse.Namespace,
    load: SteadyLoad,
    watched: WatchedPolicy,
    total_bytes: int,
    num_errors: int,
) -> Result:
    losses = watched.losses
    return Result(
        figures={
            "failed": load.num_failed,
            "ids_differ": load.num_differing_ids,
            "requests": load.num_ended,
            "pages_freed": sum(loss.num_pages for loss in losses),
            "pages_restored": sum(loss.num_restored for loss in losses),
            "pages_restored_share": restored_share(losses),
            "weights_released": watched.num_weights_released,
            "weights_loaded": watched.num_weights_loaded,
            "faults": len(load.faults) + num_errors,
        },
        must_hold={"failed": 0, "ids_differ": 0},
        # Where nothing was given up, nothing was shown.
        must_exceed={"requests": 0, "pages_freed": 0, "weights_released": 0},
        conditions={"dtype": arguments.dtype, "device_bytes": total_bytes},
        detail={
            "moments": [asdict(moment) for moment in watched.moments],
            "losses": [asdict(loss) for loss in losses],
            "faults": sorted(load.faults),
        },
        tables=(_timeline(watched.moments, total_bytes), _lost(losses)),
    )


def _timeline(moments: list[Moment], total_bytes: int) -> Table:
    rows, act = [], ""
    for moment in moments:
        rows.append(
            (
                f"{moment.at_s:.1f}",
                "" if moment.act == act else moment.act,
                moment.level,
                moment.release.replace("_", " "),
                moment.arm,
                moment.reason,
                f"{moment.own_bytes / total_bytes:.0%}",
            )
        )
        act = moment.act
    columns = ("s", "co-tenant or device", "memory", "given up", "arm", "reason", "held so far")
    return Table("Timeline: what was in force from when on", columns, tuple(rows))


def _lost(losses: list[Loss]) -> Table:
    return Table(
        "Pages of drafters' contexts that were given up while requests had them",
        ("drafter", "freed", "restored"),
        tuple((loss.drafter, str(loss.num_pages), str(loss.num_restored)) for loss in losses),
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dtype", default="bfloat16", choices=[dtype.value for dtype in Dtype])
    parser.add_argument("--threads", type=int, default=None, help="all CPUs by default")


if __name__ == "__main__":
    run_benchmark(
        "vram",
        "What a replica gives up while a co-tenant takes the device's memory, and takes back.",
        measure,
        _add_arguments,
    )

"""``python -m benchmarks.http``: tokens/s through HTTP over tokens/s in process, and memory."""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.http.client import AnswerError, ChatClient
from benchmarks.http.edge import measure_edge
from benchmarks.http.rounds import HttpRun
from benchmarks.http.server import DEFAULT, FAST, Mode, Server, ServerError
from benchmarks.http.soak import soak
from benchmarks.http.summary import ModeResult, result_from_modes
from benchmarks.peers.arms import Arms
from benchmarks.peers.catalogue import OURS
from benchmarks.peers.environment import PeerAbsentError
from benchmarks.peers.samples import Load
from benchmarks.report import Options, Result, run_benchmark
from dflash.cache_folder import default_cache_dir
from dflash.models.embedded import ensure_embedded_model, packaged_gguf

_FULL_SOAK_REQUESTS = 10_000
_LEAST_SOAK_REQUESTS = 200


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        num_rounds: Rounds of all loads, in each mode.
        loads: What each visit serves.
    """

    num_rounds: int
    loads: tuple[Load, ...]


_FULL = Plan(num_rounds=5, loads=(Load(1, 4, 96), Load(8, 24, 96), Load(32, 64, 96)))
_QUICK = Plan(num_rounds=2, loads=(Load(1, 2, 32), Load(8, 16, 32), Load(32, 32, 32)))


def measure(options: Options) -> Result:
    """Compare both modes of Ray Serve with the engine in process."""
    plan = _QUICK if options.quick else _FULL
    num_soak_requests = options.arguments.soak
    if num_soak_requests is None:
        num_soak_requests = 0 if options.quick else _FULL_SOAK_REQUESTS
    cache = default_cache_dir()
    model_folder = ensure_embedded_model(cache)
    try:
        with Arms(cache / "peers", model_folder, packaged_gguf()) as arms:
            arms.start([OURS])
            if OURS.name in arms.absent:
                raise PeerAbsentError(arms.absent[OURS.name])
            results = {
                mode: _measure_mode(mode, arms, model_folder, plan, num_soak)
                for mode, num_soak in ((FAST, num_soak_requests), (DEFAULT, 0))
            }
        edge = measure_edge(cache / "benchmarks" / "edge", plan.num_rounds)
    except (AnswerError, PeerAbsentError, ServerError) as error:
        sys.exit(f"nothing to compare: {error}")
    return result_from_modes(plan.loads, results, arms.descriptions[OURS.name], edge)


def _measure_mode(
    mode: Mode, arms: Arms, model_folder: Path, plan: Plan, num_soak_requests: int
) -> ModeResult:
    """Start Ray Serve in this mode, run all rounds and the soak, stop it."""
    with Server(mode, default_cache_dir() / "benchmarks") as server:
        client = ChatClient(server.port, server.model)
        run = HttpRun(client, server.processes, arms, model_folder)
        comparisons = run.measure(plan.loads, plan.num_rounds, mode.name)
        footprint = server.processes.footprint()
        served = soak(client, server.processes, num_soak_requests) if num_soak_requests else None
        return ModeResult(tuple(comparisons), footprint, served)


def _num_requests(text: str) -> int:
    """Return the number of soak requests.

    Raises:
        ArgumentTypeError: It is no number, or too few to see growth past the warm-up.
    """
    if not text.isdecimal() or 0 < int(text) < _LEAST_SOAK_REQUESTS:
        raise argparse.ArgumentTypeError(
            f"must be 0 or at least {_LEAST_SOAK_REQUESTS} requests, got {text}"
        )
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this benchmark's own arguments."""
    parser.add_argument(
        "--soak",
        type=_num_requests,
        metavar="N",
        help="serve N short requests and watch the replica's memory; 0 for none "
        f"(default: {_FULL_SOAK_REQUESTS}, with --quick none)",
    )


if __name__ == "__main__":
    run_benchmark(
        "http", "Through HTTP and Ray Serve beside the engine in process.", measure, add_arguments
    )

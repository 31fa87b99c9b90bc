"""``python -m benchmarks.peers``: our engine beside others, same weights, one interleaved run."""

import argparse
import sys
from pathlib import Path

from benchmarks.peers.arms import Arms
from benchmarks.peers.catalogue import ENGINE_NAMES, OURS, OURS_FREE, PEERS
from benchmarks.peers.environment import PeerAbsentError
from benchmarks.peers.rounds import InterleavedRun, Plan
from benchmarks.peers.samples import Load
from benchmarks.peers.summary import result_from_samples
from benchmarks.report import Options, Result, run_benchmark
from dflash.cache_folder import default_cache_dir
from dflash.models.embedded import ensure_embedded_model, packaged_gguf

_FULL = Plan(num_rounds=5, loads=(Load(1, 4, 96), Load(8, 24, 96), Load(32, 64, 96)))
_QUICK = Plan(num_rounds=3, loads=(Load(1, 1, 48), Load(8, 8, 32), Load(32, 32, 32)))


def measure(options: Options) -> Result:
    """Start every engine that was asked for, compare them, stop them."""
    chosen: list[str] = options.arguments.engine
    peers = [OURS, OURS_FREE, *(peer for peer in PEERS if peer.name in chosen)]
    plan = _QUICK if options.quick else _FULL
    model_folder = ensure_embedded_model(default_cache_dir())
    with Arms(options.arguments.peers_dir, model_folder, packaged_gguf()) as arms:
        arms.start(peers)
        try:
            if OURS.name in arms.absent:
                raise PeerAbsentError(arms.absent[OURS.name])
            samples = InterleavedRun(arms, model_folder, plan).measure()
        except PeerAbsentError as error:
            sys.exit(f"nothing to compare, our own engine failed: {error}")
        return result_from_samples(samples, plan.loads, peers, arms.descriptions, arms.absent)


def engine_names(text: str) -> list[str]:
    """Return the names in a comma-separated list.

    Raises:
        ArgumentTypeError: One of them is unknown.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in ENGINE_NAMES:
            raise argparse.ArgumentTypeError(
                f"unknown engine {name!r}; choose from {','.join(ENGINE_NAMES)}"
            )
    return names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this benchmark's own arguments."""
    parser.add_argument(
        "--engine",
        type=engine_names,
        default=list(ENGINE_NAMES),
        metavar="NAMES",
        help=f"comma-separated, ours is always in; all are {','.join(ENGINE_NAMES)}",
    )
    parser.add_argument(
        "--peers-dir",
        type=Path,
        default=default_cache_dir() / "peers",
        metavar="FOLDER",
        help="where the peers' environments and logs lie (default: %(default)s)",
    )


if __name__ == "__main__":
    run_benchmark(
        "peers",
        "Output tokens/s beside other engines on the same weights.",
        measure,
        add_arguments,
    )

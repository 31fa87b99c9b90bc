"""A target with drafters, the same target alone, and step times: what policies are compared on."""

import argparse
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.report import progress
from benchmarks.speculation.lineup import Lineup, Wanted, drafter_names, load_lineup
from benchmarks.speculation.tasks import MIX, Turns, read_tasks, sample
from deployments.step_times import StepTimes, step_times_of
from dflash.config import Dtype, EngineConfig, EngineLimits, KVCacheConfig
from dflash.engine import Engine
from dflash.load import LoadedTarget, load_target
from dflash.train.prompts.mix import held_out_prompts

_MEMORY_GIB = 0.75


@dataclass(frozen=True, slots=True)
class Contest:
    """What is compared.

    Attributes:
        lineup: The target with its drafters.
        plain: The target alone, with the drafters' memory given to its pages.
    """

    lineup: Lineup
    plain: LoadedTarget


def add_contest_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a command line say what is compared, and on what."""
    parser.add_argument(
        "--tasks", type=Path, metavar="DIR", help="folder of task files; our mix is always in"
    )
    parser.add_argument("--dtype", default="bfloat16", choices=[dtype.value for dtype in Dtype])
    parser.add_argument("--threads", type=int, default=None, help="all CPUs by default")
    parser.add_argument(
        "--drafters",
        type=drafter_names,
        default=(),
        metavar="LIST",
        help="comma-separated, of the shipped ones only these; such as dflash2,mtp",
    )


def load_contest(dtype: str, num_threads: int | None, names: tuple[str, ...]) -> Contest:
    """Load both.

    Args:
        dtype: Type of weights, activations and pages.
        num_threads: Threads of the kernels; None takes all CPUs.
        names: Of the shipped drafters only these; none takes all.

    Raises:
        EngineError: Something cannot be loaded.
        DrafterAbsentError: A drafter is not shipped.
    """
    lineup = load_lineup(Wanted(dtype, num_threads, names=names, memory_gib=_MEMORY_GIB))
    added_bytes = sum(map(_size_bytes, lineup.folders))
    alone = EngineConfig(
        dtype=Dtype(dtype),
        num_threads=num_threads,
        kv_cache=KVCacheConfig(memory_gib=_MEMORY_GIB + added_bytes / 2**30),
    )
    return Contest(lineup, load_target(alone))


def measured_times(lineup: Lineup, most_rows: int) -> StepTimes:
    """Measure step times as a replica does at its start; nothing is kept from another run."""
    limits = EngineLimits(max_num_seqs=most_rows)
    engine = Engine(lineup.target.runner, limits, drafters=lineup.drafters)
    with progress(100, "step times") as bar, TemporaryDirectory() as folder:
        return step_times_of(
            engine, {}, Path(folder), lambda share: bar.update(int(100 * share) - bar.n)
        )


def conversations_by_task(folder: Path | None, count: int) -> dict[str, list[Turns]]:
    """Return our mix and a sample of each task file in a folder.

    Raises:
        ConfigError: The folder holds no task file, or one has a line that is no conversation.
    """
    files = read_tasks(folder) if folder else {}
    samples = {name: sample(each, count, seed=0) for name, each in files.items()}
    return {**samples, MIX: [prompt.turns for prompt in held_out_prompts(count)]}


def one_of_each(tasks: dict[str, list[Turns]]) -> list[Turns]:
    """Return the conversations of all tasks, one of each in turn."""
    groups = zip_longest(*tasks.values())
    return [turns for group in groups for turns in group if turns is not None]


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))

"""`dflashctl check serve_config.yaml`: every problem of a configuration before anything starts.

Its keys and values, whether drafters belong to their target, and whether all of it fits, by the
functions that a start uses. Needs no accelerator, starts no Ray, loads no weights, asks no network.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deployments.app import ENGINE_NAME
from deployments.cards import UnknownCardError, memory_of_card, memory_of_size
from deployments.config import ServeArgs, serve_args_from
from deployments.config_file import ConfigFile, is_ours, read_config_file
from deployments.llm_configs import LLM_CONFIGS, Moved, moved_from
from deployments.prediction import Prediction, memory_table, predicted
from deployments.strict import KeyPath, Problem, dotted
from dflash.machine_memory import MachineMemory, memory_of_this_machine


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found out about one application."""

    problems: tuple[Problem, ...]
    lines: tuple[str, ...]


def main(argv: Sequence[str]) -> int:
    """Print all problems, then what each application will hold.

    Returns:
        0 without a problem, 1 with one, 2 where the command itself is wrong.
    """
    parser = _parser()
    try:
        options = parser.parse_args(argv)
        named = _named_memory(options)
    except UnknownCardError as error:
        sys.stderr.write(f"dflashctl check: {error}\n")
        return 2
    except SystemExit as left:
        return int(left.code or 0)
    file = read_config_file(options.file)
    found = [*_look_into(file, named)]
    beyond = file.placed(problem for each in found for problem in each.problems)
    problems = [*file.problems, *beyond]
    for problem in problems:
        sys.stderr.write(f"{options.file}{problem.report()}\n")
    for each in found:
        sys.stdout.write("".join(f"{line}\n" for line in each.lines))
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        sys.stderr.write(f"{count}. Nothing was started.\n")
    else:
        sys.stderr.write(f"{options.file}: no problem found\n")
    return 1 if problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dflashctl check",
        description="Check a configuration file, and say what memory it will take, by part.",
    )
    parser.add_argument("file", type=Path, help="a Serve configuration, such as serve_config.yaml")
    against = parser.add_mutually_exclusive_group()
    against.add_argument(
        "--device-memory", type=_gib, metavar="GIB", help="memory of the device, GiB"
    )
    against.add_argument("--card", metavar="NAME", help="a card by its name, such as H200")
    return parser


def _gib(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1_000_000:
        raise argparse.ArgumentTypeError(f"it must be over 0, got {text}")
    return value


def _named_memory(options: argparse.Namespace) -> MachineMemory | None:
    if options.card is not None:
        return memory_of_card(options.card)
    if options.device_memory is not None:
        return memory_of_size(options.device_memory)
    return None


def _look_into(file: ConfigFile, named: MachineMemory | None) -> Iterator[_Found]:
    for path, application in file.applications():
        title = f"{dotted(path)} {application.get('name', '')}".rstrip()
        if not is_ours(application):
            import_path = application.get("import_path")
            yield _Found((), (f"{title}: {import_path} is not this server; not looked into",))
            continue
        at: KeyPath = (*path, "args")
        if any(problem.path[: len(at)] == at for problem in file.problems):
            continue
        args = application.get("args") or {}
        moved = moved_from(args) if LLM_CONFIGS in args else None
        settings = serve_args_from(args) if moved is None else moved.settings()
        options = _engine_options(application, moved)
        memory = named or _memory_for(options)
        prediction = predicted(settings.engine, memory)
        yield _Found(
            tuple(_in_file(each, at, moved) for each in prediction.problems),
            tuple(_described(title, settings, prediction, memory, options)),
        )


def _engine_options(application: Mapping[str, Any], moved: Moved | None) -> Mapping[str, Any]:
    """Return the options of the engine's deployment, the file's own over those of Ray's form."""
    deployments = application.get("deployments") or []
    own = (each for each in deployments if each.get("name") == ENGINE_NAME)
    return {**({} if moved is None else moved.options.engine), **next(own, {})}


def _memory_for(options: Mapping[str, Any]) -> MachineMemory:
    """Return the memory of the card that an engine asks for, else of this machine."""
    card = (options.get("ray_actor_options") or {}).get("accelerator_type")
    try:
        return memory_of_this_machine() if card is None else memory_of_card(card)
    except UnknownCardError:
        return memory_of_this_machine()


def _in_file(problem: Problem, at: KeyPath, moved: Moved | None) -> Problem:
    given = problem if moved is None else moved.as_given(problem)
    return replace(given, path=(*at, *given.path))


def _described(
    title: str,
    settings: ServeArgs,
    prediction: Prediction,
    memory: MachineMemory,
    options: Mapping[str, Any],
) -> Iterator[str]:
    engine = settings.engine
    yield f"{title}: {settings.served_name}, {engine.dtype} from {engine.model}"
    if prediction.plain is not None:
        yield memory_table(prediction, memory)
    most = (options.get("autoscaling_config") or {}).get("max_replicas", 1)
    if most > 1:
        yield f"  each of up to {most} engine replicas takes as much"
    for drafter in prediction.drafters:
        yield f"  drafter: {drafter}"
    for note in prediction.notes:
        yield f"  {note}"

"""``python -m benchmarks.clients``: other people's benchmark clients against a paced server."""

import argparse
import contextlib
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from benchmarks.clients.paced import PacedClient
from benchmarks.clients.tools import TOOLS, ClientTool, Load, Reading
from benchmarks.parent_death import end_with_parent
from benchmarks.peers.environment import PeerAbsentError, python_of
from benchmarks.report import Options, Result, Table, number_text, run_benchmark
from dflash.cache_folder import default_cache_dir
from dflash.config import EngineConfig
from tests.rigs.byte_tokenizer import END
from tests.rigs.http_server import MODEL, serving

_FULL, _QUICK = 48, 16
_TOLERANCE = 0.1
_TIMEOUT_S = 600
_CONTEXT = 4096
# Nobody is told that a client ran.
_QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


def measure(options: Options) -> Result:
    """Let each client measure a server whose speed is known, and compare."""
    chosen = [tool for tool in TOOLS if tool.name in options.arguments.client]
    readings: dict[str, Reading] = {}
    absent: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name, _server(Path(name), options) as load:
        for tool in chosen:
            try:
                readings[tool.name] = _read(tool, load, Path(name), options.arguments.peers_dir)
            except PeerAbsentError as error:
                absent[tool.name] = str(error)
    return result_of(readings, expected_reading(load), absent)


def expected_reading(load: Load) -> Reading:
    """Return what a client must report of a load."""
    pace = PacedClient.pace
    return Reading(
        requests=load.num_requests,
        output_tokens=load.num_requests * load.output_tokens,
        ttft_ms=pace.ttft_ms(),
        tpot_ms=pace.tpot_ms(load.output_tokens),
        acceptance_length=pace.tokens_per_step,
    )


def result_of(readings: dict[str, Reading], expected: Reading, absent: dict[str, str]) -> Result:
    """Return the comparison; a number further off than a tenth disagrees."""
    names = [each.name for each in fields(Reading)]
    notes = [f"{name} did not run: {reason}" for name, reason in absent.items()]
    num_disagreeing = 0
    rows = [("known", *(number_text(getattr(expected, name)) for name in names))]
    for tool, reading in readings.items():
        rows.append((tool, *(number_text(getattr(reading, name)) for name in names)))
        for name in names:
            known, found = getattr(expected, name), getattr(reading, name)
            if found is not None and abs(found - known) > _TOLERANCE * known:
                num_disagreeing += 1
                notes.append(f"{tool} disagrees: {name} {found:.4g}, known {known:.4g}")
    return Result(
        figures={"ran": len(readings), "disagree": num_disagreeing},
        must_hold={"disagree": 0},
        must_exceed={"ran": 0},
        tables=(Table("Medians, milliseconds", ("client", *names), tuple(rows)),),
        notes=tuple(notes),
    )


def _read(tool: ClientTool, load: Load, folder: Path, environments: Path) -> Reading:
    """Run one client to its end and return what it reports.

    Raises:
        PeerAbsentError: It cannot be installed, fails, or writes nothing that we can read.
    """
    binaries = python_of(tool, environments).parent
    out = folder / tool.name
    out.mkdir()
    log = environments / "logs" / f"{tool.name}-client.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [str(binaries / tool.command), *tool.arguments(load, out)]
    path = os.pathsep.join([str(binaries), os.environ.get("PATH", "")])
    # The clients bring packages of their own: ours must not be found before them.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | _QUIET
    with log.open("wb") as file:
        try:
            code = subprocess.run(
                command,
                cwd=out,
                env={**environment, "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=_TIMEOUT_S,
                check=False,
                preexec_fn=end_with_parent,
            ).returncode
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PeerAbsentError(f"{error}; read {log}") from error
    try:
        return tool.read(out)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise PeerAbsentError(f"exit code {code}, nothing to read ({error}); read {log}") from error


@contextlib.contextmanager
def _server(folder: Path, options: Options) -> Iterator[Load]:
    logging.disable(logging.INFO)
    config = EngineConfig(max_model_len=_CONTEXT)
    with serving(config, response_metrics=True, client_type=PacedClient) as server:
        tokenizer = folder / "tokenizer"
        _write_tokenizer(server.model_folder, tokenizer)
        yield Load(server.base_url, MODEL, tokenizer, _QUICK if options.quick else _FULL)


def _write_tokenizer(model_folder: Path, folder: Path) -> None:
    """Write the server's tokenizer as transformers reads one."""
    folder.mkdir()
    shutil.copy(model_folder / "tokenizer.json", folder)
    config = f'{{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "{END}"}}'
    (folder / "tokenizer_config.json").write_text(config, encoding="utf-8")


def client_names(text: str) -> list[str]:
    """Return the names in a comma-separated list.

    Raises:
        ArgumentTypeError: One of them is unknown.
    """
    known = [tool.name for tool in TOOLS]
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"no client {name!r}; there are {', '.join(known)}")
    return names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this benchmark's own arguments."""
    parser.add_argument(
        "--client",
        type=client_names,
        default=[tool.name for tool in TOOLS],
        metavar="NAMES",
        help="comma-separated; default: all",
    )
    parser.add_argument(
        "--peers-dir",
        type=Path,
        default=default_cache_dir() / "peers",
        metavar="FOLDER",
        help="where the clients' environments and logs lie (default: %(default)s)",
    )


if __name__ == "__main__":
    run_benchmark(
        "clients",
        "AIPerf, GuideLLM and vLLM's client against a server whose speed is known.",
        measure,
        add_arguments,
    )

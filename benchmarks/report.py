"""The door every benchmark goes through: options in; tables, JSON and an exit code out.

A benchmark is one function from `Options` to `Result`:

    def measure(options: Options) -> Result:
        ...
        return Result(
            figures={"ids_differ": differ, "requests": requests},
            must_hold={"ids_differ": 0},
        )

    if __name__ == "__main__":
        run_benchmark("storm", "Random requests against serial decoding.", measure)
"""

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from tqdm import tqdm

from benchmarks.machine import machine_facts


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asked for.

    Attributes:
        quick: Finish in under three minutes on two cores, at the price of wider spreads.
        json_path: Where the machine-readable result goes; None for nowhere.
        arguments: The benchmark's own arguments.
    """

    quick: bool
    json_path: Path | None = None
    arguments: argparse.Namespace = field(default_factory=argparse.Namespace)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of finished text, for people.

    Attributes:
        title: Says what is compared, units included.
        columns: Heads of the columns.
        rows: One cell a column; numbers are already rounded.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.title!r} has {len(self.columns)} columns, but a row has "
                    f"{len(row)} cells: {row}; give one cell a column"
                )


@dataclass(frozen=True, slots=True)
class Result:
    """What a benchmark found.

    Attributes:
        figures: Flat names to finite numbers: what is compared between runs. A figure that could
            not be measured is left out, and the reason goes into ``notes``.
        must_hold: Figures that must have exactly this value in every run.
        must_exceed: Figures that must lie over this value in every run.
        conditions: Under which the figures were taken (dtype, threads), beside the machine's facts.
        detail: Anything else that JSON can carry.
        tables: What people read.
        notes: Sentences printed under the tables, such as why a figure is missing.
    """

    figures: Mapping[str, float]
    must_hold: Mapping[str, float] = field(default_factory=dict)
    must_exceed: Mapping[str, float] = field(default_factory=dict)
    conditions: Mapping[str, str | int | float] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value in self.figures.items():
            if not math.isfinite(value):
                raise ValueError(
                    f"figure {name} is {value}; leave out what was not measured "
                    "and say why in notes"
                )

    def broken(self) -> list[str]:
        """Return one sentence for each figure that must hold and does not."""
        sentences = []
        for name in {**self.must_hold, **self.must_exceed}:
            value = self.figures.get(name)
            if value is None:
                sentences.append(f"{name} must be {self.demand(name)} but was not measured")
            elif not self._holds(name, value):
                sentences.append(f"{name} must be {self.demand(name)} but is {value:g}")
        return sentences

    def demand(self, name: str) -> str:
        """Return what a figure must be, for people; nothing where it is free."""
        if name in self.must_exceed:
            return f"over {number_text(self.must_exceed[name])}"
        return number_text(self.must_hold.get(name))

    def _holds(self, name: str, value: float) -> bool:
        return value == self.must_hold.get(name, value) and value > self.must_exceed.get(
            name, -math.inf
        )


def run_benchmark(
    name: str,
    description: str,
    measure: Callable[[Options], Result],
    add_arguments: Callable[[argparse.ArgumentParser], object] | None = None,
    argv: Sequence[str] | None = None,
) -> NoReturn:
    """Measure, print, write the JSON, and exit: 1 where a figure that must hold does not.

    Args:
        name: The benchmark's module name, also in its JSON.
        description: One sentence for ``--help``.
        measure: The benchmark itself.
        add_arguments: Adds the benchmark's own arguments, found in ``options.arguments``.
        argv: The command line without the program; None takes the process's own.

    Raises:
        SystemExit: Always, with the exit code.
    """
    options = _parse(name, description, add_arguments, argv)
    result = measure(options)
    print_result(name, result)
    if options.json_path is not None:
        _write_atomically(options.json_path, json_text(name, options.quick, result))
    broken = result.broken()
    for sentence in broken:
        print(f"FAILED {name}: {sentence}", file=sys.stderr)
    sys.exit(1 if broken else 0)


def progress(total: int, what: str) -> "tqdm[NoReturn]":
    """Return a progress bar on standard error; nothing is drawn where nobody watches."""
    return tqdm(total=total, desc=what, file=sys.stderr, disable=None, leave=False)


def json_text(name: str, quick: bool, result: Result) -> str:
    """Return the benchmark's machine-readable form."""
    document = {
        "benchmark": name,
        "figures": dict(result.figures),
        "must_hold": dict(result.must_hold),
        "must_exceed": dict(result.must_exceed),
        "broken": result.broken(),
        "machine": {**machine_facts(), **result.conditions},
        "detail": dict(result.detail),
        "notes": list(result.notes),
        "quick": quick,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def print_result(name: str, result: Result) -> None:
    """Print tables, figures, notes and machine on standard output."""
    for table in result.tables:
        print(f"\n{table.title}\n\n{table_text(table)}")
    figures = Table(
        title=f"{name}: figures",
        columns=("figure", "value", "must be"),
        rows=tuple(
            (key, number_text(value), result.demand(key)) for key, value in result.figures.items()
        ),
    )
    print(f"\n{figures.title}\n\n{table_text(figures)}")
    for note in result.notes:
        print(f"\nNote: {note}")
    facts = {**machine_facts(), **result.conditions}
    print("\nMachine: " + "; ".join(f"{key} {value}" for key, value in facts.items()))


def table_text(table: Table) -> str:
    """Return the table as aligned Markdown, ready for docs/performance.md."""
    lines = [table.columns, *table.rows]
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(table.columns))]
    # The first column names the row and reads from the left; numbers line up on the right.
    sides = ["<", *[">"] * (len(widths) - 1)]
    rules = [
        "-" * width if side == "<" else "-" * (width - 1) + ":"
        for side, width in zip(sides, widths, strict=True)
    ]
    rows = [
        [f"{cell:{side}{width}}" for cell, side, width in zip(line, sides, widths, strict=True)]
        for line in lines
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], rules, *rows[1:]])


def number_text(value: float | None) -> str:
    """Return a figure for people: counts whole, ratios with four digits, nothing for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.4g}"


def _parse(
    name: str,
    description: str,
    add_arguments: Callable[[argparse.ArgumentParser], object] | None,
    argv: Sequence[str] | None,
) -> Options:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--quick", action="store_true", help="under three minutes on two cores")
    parser.add_argument(
        "--json", type=Path, metavar="PATH", help="write figures and detail to this file"
    )
    if add_arguments is not None:
        add_arguments(parser)
    arguments = parser.parse_args(argv)
    if arguments.json is not None:
        # A path that cannot be written must be refused now, not after an hour of measuring.
        try:
            arguments.json.parent.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=arguments.json.parent).close()
        except OSError as error:
            parser.error(
                f"--json {arguments.json} cannot be written ({error.strerror}); "
                "give a path in a folder you may write to"
            )
    return Options(quick=arguments.quick, json_path=arguments.json, arguments=arguments)


def _write_atomically(path: Path, text: str) -> None:
    """Write the whole file or nothing, so that no reader finds half a result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        # mkstemp makes files for their owner only; a result is for whoever may read the folder.
        Path(draft).chmod(0o644)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise

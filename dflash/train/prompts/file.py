"""Prompts in a file: one JSON object a line."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from dflash.errors import ConfigError
from dflash.train.prompts.mix import Prompt


def line_of(prompt: Prompt) -> str:
    """Return a prompt's line, without its end."""
    return json.dumps(asdict(prompt), ensure_ascii=False)


def read_prompts(path: Path) -> Iterator[Prompt]:
    """Yield the prompts of a file; a line without a kind is of the kind ``other``.

    Raises:
        ConfigError: The file cannot be read, or a line of it is not a prompt.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                yield _prompt_of(line, f"{path}, line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the prompts in {path}: {error}") from error


def task_files(folder: Path) -> list[Path]:
    """Return the ``*.jsonl`` files of a folder of tasks, by name.

    Raises:
        ConfigError: There is none.
    """
    paths = sorted(folder.glob("*.jsonl"))
    if not paths:
        raise ConfigError(
            f"--tasks is {folder}, which holds no .jsonl file; name the tasks' folder"
        )
    return paths


def _prompt_of(line: str, place: str) -> Prompt:
    try:
        content = json.loads(line)
        kind, turns = content.get("kind", "other"), content["turns"]
    except (ValueError, KeyError, TypeError, AttributeError):
        kind, turns = "", None
    if not turns or not isinstance(turns, list) or not all(isinstance(t, str) for t in turns):
        raise ConfigError(
            f'{place}: expected {{"turns": ["..."]}} with a turn or more, got {line.strip()[:60]!r}'
        )
    return Prompt(str(kind), tuple(turns))

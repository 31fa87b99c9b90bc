"""Conversations to answer: task files in JSON lines, and a held-out mix of our own."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

MIX = "mix"

Turns = tuple[str, ...]


class TaskFileError(Exception):
    """A task file cannot be read; the message names file, line and what a line must be."""


def read_tasks(folder: Path) -> dict[str, list[Turns]]:
    """Return the conversations of every ``*.jsonl`` in a folder, by the file's name.

    Raises:
        TaskFileError: There is no such file, or one has a line that is no conversation.
    """
    paths = sorted(folder.glob("*.jsonl"))
    if not paths:
        raise TaskFileError(f"{folder} holds no *.jsonl file; name a folder of task files")
    # A file name becomes part of a figure's name.
    return {path.stem.replace("-", "_"): _read(path) for path in paths}


def sample(conversations: Sequence[Turns], count: int, seed: int) -> list[Turns]:
    """Return ``count`` conversations drawn without replacement; all where there are fewer."""
    return random.Random(seed).sample(conversations, min(count, len(conversations)))


def _read(path: Path) -> list[Turns]:
    conversations = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            turns = json.loads(line)["turns"]
        except (ValueError, TypeError, KeyError):
            turns = None
        if not turns or not isinstance(turns, list) or not all(isinstance(t, str) for t in turns):
            raise TaskFileError(
                f'{path}, line {number}: write an object {{"turns": ["...", ...]}} with at least '
                "one turn"
            )
        conversations.append(tuple(turns))
    return conversations

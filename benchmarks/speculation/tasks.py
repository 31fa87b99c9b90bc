"""Conversations to answer: a folder of task files, sampled."""

import random
from collections.abc import Sequence
from pathlib import Path

from dflash.train.prompts.file import read_prompts, task_files

MIX = "mix"

Turns = tuple[str, ...]


def read_tasks(folder: Path) -> dict[str, list[Turns]]:
    """Return the conversations of every ``*.jsonl`` in a folder, by the file's name.

    Raises:
        ConfigError: There is no such file, or one has a line that is no conversation.
    """
    # A file name becomes part of a figure's name.
    return {
        path.stem.replace("-", "_"): [prompt.turns for prompt in read_prompts(path)]
        for path in task_files(folder)
    }


def sample(conversations: Sequence[Turns], count: int, seed: int) -> list[Turns]:
    """Return ``count`` conversations drawn without replacement; all where there are fewer."""
    return random.Random(seed).sample(conversations, min(count, len(conversations)))

"""Whether prompts share 13 words in a row with published tasks: they never may."""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from dflash.errors import EngineError
from dflash.train.prompts.file import read_prompts, task_files
from dflash.train.prompts.mix import Prompt

GRAM_WORDS = 13
_WORD = re.compile(r"[^\W_]+")


def grams_of(text: str) -> Iterator[str]:
    """Yield every run of 13 words of a text, in lower case and without punctuation."""
    words = _WORD.findall(text.lower())
    for start in range(len(words) - GRAM_WORDS + 1):
        yield " ".join(words[start : start + GRAM_WORDS])


def grams_in(prompt: Prompt) -> Iterator[str]:
    """Yield every run of 13 words of a prompt's turns."""
    for turn in prompt.turns:
        yield from grams_of(turn)


def grams_of_tasks(folder: Path) -> dict[str, str]:
    """Return every 13-gram of the ``*.jsonl`` files in a folder, with the file it is from.

    Raises:
        ConfigError: There is no such file, or one of them is damaged.
    """
    return {
        gram: path.name
        for path in task_files(folder)
        for prompt in read_prompts(path)
        for gram in grams_in(prompt)
    }


def shared_grams(prompts: Path, tasks: Path) -> dict[str, str]:
    """Return the 13-grams that a file of prompts shares with tasks, with the tasks' file.

    Raises:
        ConfigError: A file cannot be read.
    """
    forbidden = grams_of_tasks(tasks)
    found = (gram for prompt in read_prompts(prompts) for gram in grams_in(prompt))
    return {gram: forbidden[gram] for gram in found if gram in forbidden}


def main(arguments: list[str] | None = None) -> int:
    """Print what is shared and return the exit status: 1 where anything is."""
    parser = argparse.ArgumentParser(
        prog="python -m dflash.train.overlap",
        description="Count the runs of 13 words that prompts share with task files.",
    )
    parser.add_argument("prompts", type=Path, help="a file of prompts")
    parser.add_argument("--tasks", type=Path, required=True, help="the folder of the task files")
    settings = parser.parse_args(arguments)
    try:
        shared = shared_grams(settings.prompts, settings.tasks)
    except EngineError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{len(shared)} shared runs of {GRAM_WORDS} words\n")
    for gram, name in sorted(shared.items()):
        sys.stdout.write(f"{name}: {gram}\n")
    return 1 if shared else 0


if __name__ == "__main__":
    sys.exit(main())

"""The mix of kinds, drawn without repeats; training and held-out prompts never meet."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dflash.train.prompts.arithmetic import arithmetic
from dflash.train.prompts.chat import chat
from dflash.train.prompts.docstring_code import docstring_code
from dflash.train.prompts.draw import Draw, Material, Split, side_of
from dflash.train.prompts.extraction import extraction
from dflash.train.prompts.formal_maths import formal_maths
from dflash.train.prompts.passages import documentation_passages
from dflash.train.prompts.rewriting import rewriting
from dflash.train.prompts.short_code import short_code
from dflash.train.prompts.topics import written_topics
from dflash.train.prompts.wordnet import wordnet_topics

# Kinds and their shares in percent.
KINDS: dict[str, tuple[Callable[[Draw], tuple[str, ...]], float]] = {
    "arithmetic": (arithmetic, 20),
    "formal-maths": (formal_maths, 15),
    "docstring-code": (docstring_code, 15),
    "short-code": (short_code, 10),
    "chat": (chat, 25),
    "rewriting": (rewriting, 9),
    "extraction": (extraction, 6),
}
_HELD_OUT_SEED = 20_240_229


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a user says, in one turn or in two.

    Attributes:
        kind: One of `KINDS`.
        turns: The user's words; the answers come between them.
    """

    kind: str
    turns: tuple[str, ...]


@lru_cache
def material(wordnet: Path | None = None) -> Material:
    """Return topics and passages, of both sides.

    Args:
        wordnet: Folder of a WordNet database; None for the topics written by hand alone.

    Raises:
        ConfigError: The database cannot be read.
    """
    topics = written_topics() + (wordnet_topics(wordnet) if wordnet else ())
    return Material(topics, documentation_passages())


def prompts(seed: int, split: Split, of: Material) -> Iterator[Prompt]:
    """Yield prompts of one side without end and without repeats, all kinds mingled.

    A prompt is of the side that the hash of its first turn says, so the sides are disjoint for
    every pair of seeds, beside topics and passages that are disjoint already.
    """
    draw = Draw(seed, split, of)
    seen: set[str] = set()
    kinds = [(kind, share) for kind, (_, share) in KINDS.items()]
    while True:
        kind = draw.weighted(kinds)
        turns = _turns(kind, draw)
        while side_of(turns[0]) is not split or turns[0] in seen:
            turns = _turns(kind, draw)
        seen.add(turns[0])
        yield Prompt(kind, turns)


def held_out(seed: int, count: int, of: Material) -> list[Prompt]:
    """Return prompts that no training stream yields, whatever its seed."""
    stream = prompts(seed, Split.HELD_OUT, of)
    return [next(stream) for _ in range(count)]


def held_out_prompts(count: int) -> list[Prompt]:
    """Return the held-out sample that benchmarks ask by default; it needs no database."""
    return held_out(_HELD_OUT_SEED, count, material())


def _turns(kind: str, draw: Draw) -> tuple[str, ...]:
    # A choice that came out empty at an end leaves its space there.
    return tuple(turn.strip() for turn in KINDS[kind][0](draw))

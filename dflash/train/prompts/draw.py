"""Seeded draws that keep training and held-out prompts apart by what they are made of."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from random import Random
from typing import TypeVar

Item = TypeVar("Item")
# One in eight topics, passages and finished prompts belongs to the held-out side.
_HELD_OUT_BYTES = 32


class Split(StrEnum):
    """Which of the two sides a prompt is for."""

    TRAINING = "training"
    HELD_OUT = "held-out"


@dataclass(frozen=True, slots=True)
class Topic:
    """Something to talk about.

    Attributes:
        words: As it stands in a sentence.
        gloss: What it means, in a few words; empty where the words say enough.
    """

    words: str
    gloss: str = ""


@dataclass(frozen=True, slots=True)
class Material:
    """What prompts are made of beside the templates.

    Attributes:
        topics: Things to talk about.
        passages: Paragraphs of permissively licensed text.
    """

    topics: tuple[Topic, ...]
    passages: tuple[str, ...]


def side_of(text: str) -> Split:
    """Return the side a text belongs to: a property of the text alone, the same for every seed."""
    first_byte = hashlib.sha256(text.encode()).digest()[0]
    return Split.HELD_OUT if first_byte < _HELD_OUT_BYTES else Split.TRAINING


@lru_cache
def _topics_of(material: Material, split: Split) -> tuple[Topic, ...]:
    return tuple(topic for topic in material.topics if side_of(topic.words) is split)


@lru_cache
def _passages_of(material: Material, split: Split) -> tuple[str, ...]:
    return tuple(passage for passage in material.passages if side_of(passage) is split)


class Draw:
    """A source of choices for one stream of prompts."""

    def __init__(self, seed: int, split: Split, material: Material) -> None:
        """Begin a stream.

        Args:
            seed: Streams of equal seed, split and material are equal.
            split: The side that topics and passages are taken from.
            material: Topics and passages of both sides.
        """
        self.split = split
        self._random = Random(f"{split}/{seed}")
        # Kept here: hashing a material walks through all of it.
        self._topics = _topics_of(material, split)
        self._passages = _passages_of(material, split)

    def one(self, pool: Sequence[Item]) -> Item:
        """Return one item of a pool."""
        return pool[self._random.randrange(len(pool))]

    def some(self, pool: Sequence[Item], count: int) -> list[Item]:
        """Return this many different places of a pool, in any order."""
        return self._random.sample(pool, count)

    def weighted(self, pool: Sequence[tuple[Item, float]]) -> Item:
        """Return one item, each as often as its weight says."""
        items, weights = zip(*pool, strict=True)
        return self._random.choices(items, weights)[0]

    def number(self, low: int, high: int) -> int:
        """Return a whole number in ``[low, high]``."""
        return self._random.randint(low, high)

    def chance(self, probability: float) -> bool:
        """Return True this often."""
        return self._random.random() < probability

    def topic(self) -> Topic:
        """Return a topic of this side."""
        return self.one(self._topics)

    def passage(self, fits: Callable[[str], bool] = bool) -> str:
        """Return a passage of this side for which ``fits`` holds."""
        while not fits(passage := self.one(self._passages)):
            pass
        return passage

"""Parts of functions, each with its words and its meaning, so that examples are computed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dflash.train.prompts.draw import Draw


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a function.

    Attributes:
        name: A word or two for the function's name.
        words: What it does, as it stands in a sentence.
        apply: What it does.
    """

    name: str
    words: str
    apply: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Family:
    """Functions over one type of argument.

    Attributes:
        argument: Name of the argument.
        type_name: Its annotation.
        words: What it is, in the plural or singular of a sentence.
        sample: Draws one value of it.
        keep: Which elements matter.
        change: What becomes of each.
        gather: What is returned, with the annotation of the result.
    """

    argument: str
    type_name: str
    words: str
    sample: Callable[[Draw], Any]
    keep: tuple[Part, ...]
    change: tuple[Part, ...]
    gather: tuple[tuple[Part, str], ...]


def in_order(values: list[Any]) -> list[Any]:
    """Return the values without repeats, in order of first appearance."""
    return list(dict.fromkeys(values))


ALL = Part("", "takes every element", lambda value: True)
SAME = Part("", "leaves each as it is", lambda value: value)
LIST = Part("list", "returns them as a list in the original order", list)
UNIQUE = Part("distinct", "returns them without repeats, in order of first appearance", in_order)
COUNT = Part("count", "returns how many there are", len)
SORTED = Part("sorted", "returns them in ascending order", sorted)
REVERSED = Part("reversed", "returns them from last to first", lambda values: values[::-1])
FREQUENCY = Part(
    "tally",
    "returns a dictionary from each value to how often it occurs",
    lambda values: {value: values.count(value) for value in in_order(values)},
)

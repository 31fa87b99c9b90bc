"""A function to be written, put together from parts: some thousands of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dflash.train.prompts.draw import Draw
from dflash.train.prompts.operations.numbers import NUMBERS
from dflash.train.prompts.operations.part import Family
from dflash.train.prompts.operations.tables import MATRIX, RECORDS
from dflash.train.prompts.operations.text import TEXT
from dflash.train.prompts.operations.words import STRINGS

# Lists of numbers and of words are what short functions are mostly about.
_FAMILIES = (NUMBERS, NUMBERS, STRINGS, STRINGS, TEXT, RECORDS, MATRIX)


@dataclass(frozen=True, slots=True)
class Operation:
    """A function to be written.

    Attributes:
        name: Its name.
        family: What it takes.
        result_type: Annotation of what it returns.
        sentences: What it does: which elements, what of each, what is returned.
        apply: What it returns for an argument.
    """

    name: str
    family: Family
    result_type: str
    sentences: tuple[str, str, str]
    apply: Callable[[Any], Any]


def operation(draw: Draw) -> Operation:
    """Return one of some thousands of functions."""
    family = draw.one(_FAMILIES)
    keep, change = draw.one(family.keep), draw.one(family.change)
    gather, result_type = draw.one(family.gather)

    def apply(values: Any) -> Any:
        return gather.apply([change.apply(value) for value in values if keep.apply(value)])

    parts = [part.name for part in (gather, change, keep) if part.name]
    return Operation(
        name="_".join(parts),
        family=family,
        result_type=result_type,
        sentences=(keep.words, change.words, gather.words),
        apply=apply,
    )

"""What an exercise is, and where the arguments of its examples come from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dflash.train.prompts.draw import Draw

Arguments = tuple[Any, ...]

_WORDS = """
    apple river Stone cloud Level garden echo noon Basket window tree violin Otter planet civic
    moon sugar Yellow kayak drum onion Market lamp radar ocean Pencil tiger idea Winter bread
"""
WORDS = tuple(_WORDS.split())


@dataclass(frozen=True, slots=True)
class Exercise:
    """A function to write.

    Attributes:
        names: What it may be called.
        signature: Its arguments, with annotations.
        result: Annotation of what it returns.
        task: What it does, a template with the constant ``{k}`` where it has one.
        sample: Draws the arguments of one call.
        solve: What it returns: of the constant and the arguments.
        constants: The range that ``k`` is drawn from.
    """

    names: str
    signature: str
    result: str
    task: str
    sample: Callable[[Draw], Arguments]
    solve: Callable[..., Any]
    constants: tuple[int, int] = (2, 9)


def ints(draw: Draw) -> Arguments:
    """Return a list of integers."""
    return ([draw.number(-12, 40) for _ in range(draw.number(2, 8))],)


def naturals(draw: Draw) -> Arguments:
    """Return a list of numbers from 0 up."""
    return ([draw.number(0, 20) for _ in range(draw.number(2, 8))],)


def two_lists(draw: Draw) -> Arguments:
    """Return two lists of numbers."""
    return (*naturals(draw), *naturals(draw))


def list_and_number(draw: Draw) -> Arguments:
    """Return a list and a number."""
    return (*naturals(draw), draw.number(1, 12))


def number(draw: Draw) -> Arguments:
    """Return a number up to 300."""
    return (draw.number(1, 300),)


def small(draw: Draw) -> Arguments:
    """Return a number up to 12."""
    return (draw.number(1, 12),)


def two_numbers(draw: Draw) -> Arguments:
    """Return two numbers."""
    return (draw.number(2, 60), draw.number(2, 60))


def word(draw: Draw) -> Arguments:
    """Return a word."""
    return (draw.one(WORDS),)


def two_words(draw: Draw) -> Arguments:
    """Return two different words."""
    return tuple(draw.some(WORDS, 2))


def words(draw: Draw) -> Arguments:
    """Return a list of words."""
    return (draw.some(WORDS, draw.number(2, 6)),)


def sentence(draw: Draw) -> Arguments:
    """Return words with spaces between them."""
    return (" ".join(draw.some(WORDS, draw.number(2, 6))),)


def floats(draw: Draw) -> Arguments:
    """Return a list of quarters."""
    return ([draw.number(-50, 120) / 4 for _ in range(draw.number(2, 6))],)


def stock(draw: Draw) -> Arguments:
    """Return a dictionary from words to numbers."""
    return ({word.lower(): draw.number(0, 30) for word in draw.some(WORDS, draw.number(2, 5))},)


def grid(draw: Draw) -> Arguments:
    """Return a square grid of digits."""
    size = draw.number(2, 3)
    return ([[draw.number(0, 9) for _ in range(size)] for _ in range(size)],)


def brackets(draw: Draw) -> Arguments:
    """Return round and square brackets, closed or not."""
    return ("".join(draw.one("()[]") for _ in range(draw.number(2, 8))),)


def signs(draw: Draw) -> Arguments:
    """Return a walk, one letter a step."""
    return ("".join(draw.one("NESW") for _ in range(draw.number(3, 9))),)


def intervals(draw: Draw) -> Arguments:
    """Return a list of pairs of start and end."""
    starts = [draw.number(0, 20) for _ in range(draw.number(2, 5))]
    return ([(start, start + draw.number(1, 8)) for start in starts],)

"""Sentences with choices and slots in them, filled by a seeded draw.

``[buys|orders]`` is one of its alternatives, which may be empty or nested. ``{item}`` is one item
of the pool of that name and stays the same through the text; ``{item2}`` is another one of it.
``{n=2-9}`` is a number from 2 to 9, and ``{n}`` is that number again.
"""

import re
from collections.abc import Mapping, Sequence

from dflash.train.prompts.draw import Draw

# A bracket without a bar, or after a backslash, is text: an interval, or displayed LaTeX.
_ALTERNATIVES = re.compile(r"(?<!\\)\[([^\[\]]*\|[^\[\]]*)\]")
_SLOT = re.compile(r"\{([a-z]+)(\d?)(?:=(\d+)-(\d+)(?:/(\d+))?)?\}")


def fill(template: str, draw: Draw, pools: Mapping[str, Sequence[str]], **bound: str) -> str:
    """Return the text of a template.

    Args:
        template: In the notation above; ``{n=20-80/5}`` draws multiples of 5 only. Braces around
            anything else are text.
        draw: Where choices come from.
        pools: What each named slot may hold.
        bound: Slots whose text the caller has chosen.
    """
    count = 1
    while count:
        template, count = _ALTERNATIVES.subn(lambda m: draw.one(m[1].split("|")), template)
    values = dict(bound)
    return _SLOT.sub(lambda match: _slot_text(match, draw, pools, values), template)


def _slot_text(
    match: re.Match[str], draw: Draw, pools: Mapping[str, Sequence[str]], values: dict[str, str]
) -> str:
    pool, rank, low, high, step = match.groups()
    name = pool + rank
    if name in values:
        return values[name]
    if low is not None:
        unit = int(step or 1)
        values[name] = str(unit * draw.number(-(-int(low) // unit), int(high) // unit))
    elif pool in pools:
        taken = set(values.values())
        values[name] = draw.one([text for text in pools[pool] if text not in taken])
    else:
        return match[0]
    return values[name]


def pools(text: str) -> dict[str, tuple[str, ...]]:
    """Return pools by name, written as ``name = one; two; three``, each from a new line on."""
    parts = re.split(r"(?:^|\n)\s*([a-z]+) = ", text.rstrip())[1:]
    return {
        name: tuple(" ".join(item.split()) for item in items.split(";"))
        for name, items in zip(parts[::2], parts[1::2], strict=True)
    }


def paragraphs(text: str) -> tuple[str, ...]:
    """Return templates that are written as paragraphs, each on one line."""
    return tuple(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def weighted_paragraphs(text: str) -> tuple[tuple[str, float], ...]:
    """Return templates with weights, written as paragraphs that begin with the weight."""
    parts = (paragraph.split(" ", 1) for paragraph in paragraphs(text))
    return tuple((template, float(weight)) for weight, template in parts)

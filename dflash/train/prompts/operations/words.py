"""Functions over a list of words."""

from itertools import pairwise

from dflash.train.prompts.draw import Draw
from dflash.train.prompts.exercises.exercise import WORDS
from dflash.train.prompts.operations.part import (
    ALL,
    COUNT,
    FREQUENCY,
    LIST,
    REVERSED,
    SAME,
    SORTED,
    UNIQUE,
    Family,
    Part,
)


def _word_list(draw: Draw) -> list[str]:
    return draw.some(WORDS, draw.number(3, 6))


STRINGS = Family(
    argument="words",
    type_name="list[str]",
    words="a list of words",
    sample=_word_list,
    keep=(
        ALL,
        Part("long", "keeps words of more than four letters", lambda w: len(w) > 4),
        Part("short", "keeps words of at most four letters", lambda w: len(w) < 5),
        Part("vowel_led", "keeps words that begin with a vowel", lambda w: w[0].lower() in "aeiou"),
        Part(
            "capitalised", "keeps words whose first letter is upper-case", lambda w: w[0].isupper()
        ),
        Part(
            "palindrome",
            "keeps words that read the same backwards, whatever their case",
            lambda w: w.lower() == w.lower()[::-1],
        ),
        Part("o_bearing", "keeps words that contain the letter o", lambda w: "o" in w.lower()),
        Part(
            "even_length", "keeps words with an even number of letters", lambda w: len(w) % 2 == 0
        ),
        Part(
            "double_lettered",
            "keeps words in which a letter is doubled",
            lambda w: any(a == b for a, b in pairwise(w)),
        ),
    ),
    change=(
        SAME,
        Part("upper", "writes each in capitals", str.upper),
        Part("lower", "writes each in lower case", str.lower),
        Part("mirrored", "spells each backwards", lambda w: w[::-1]),
        Part("lengths", "replaces each by its length", len),
        Part("initials", "takes the first letter of each", lambda w: w[0]),
        Part("last_letters", "takes the last letter of each", lambda w: w[-1]),
        Part(
            "vowel_counts",
            "replaces each by its number of vowels",
            lambda w: sum(c in "aeiouAEIOU" for c in w),
        ),
        Part(
            "vowelless",
            "strips the vowels from each",
            lambda w: "".join(c for c in w if c not in "aeiouAEIOU"),
        ),
        Part("swapped_case", "swaps the case of every letter", str.swapcase),
        Part(
            "letter_sorted",
            "puts the letters of each in alphabetical order",
            lambda w: "".join(sorted(w.lower())),
        ),
        Part("starred", "puts a star on both sides of each", lambda w: f"*{w}*"),
    ),
    gather=(
        (LIST, "list"),
        (COUNT, "int"),
        (UNIQUE, "list"),
        (SORTED, "list"),
        (REVERSED, "list"),
        (FREQUENCY, "dict"),
        (Part("joined", "returns them joined by hyphens", lambda v: "-".join(map(str, v))), "str"),
        (
            Part(
                "sentence",
                "returns them as one text with single spaces",
                lambda v: " ".join(map(str, v)),
            ),
            "str",
        ),
        (
            Part(
                "last",
                "returns the last one, or None if there is none",
                lambda v: v[-1] if v else None,
            ),
            "object",
        ),
        (
            Part(
                "numbered",
                "returns tuples of a number, from 1 up, and the element",
                lambda v: list(enumerate(v, 1)),
            ),
            "list",
        ),
    ),
)

"""Functions over the characters of a text."""

from typing import Any

from dflash.train.prompts.operations.part import (
    ALL,
    COUNT,
    FREQUENCY,
    LIST,
    SAME,
    UNIQUE,
    Family,
    Part,
    in_order,
)

_LINES = (
    "the quick brown fox",
    "A man walks home",
    "no news is good news",
    "rain falls on Tuesday",
    "Level after level we climb",
    "an old oak tree",
    "pack my box with jugs",
    "two plus two is 4",
    "Every echo fades at noon",
    "buy 3 eggs and 12 apples",
    "she sells sea shells",
    "Winter is near",
)


def _runs(values: list[Any]) -> list[tuple[Any, int]]:
    runs: list[tuple[Any, int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1] = (value, runs[-1][1] + 1)
        else:
            runs.append((value, 1))
    return runs


TEXT = Family(
    argument="text",
    type_name="str",
    words="a text",
    sample=lambda draw: draw.one(_LINES),
    keep=(
        ALL,
        Part("letter", "looks at letters only", str.isalpha),
        Part("digit", "looks at digits only", str.isdigit),
        Part("vowel", "looks at vowels only", lambda c: c in "aeiouAEIOU"),
        Part(
            "consonant", "looks at consonants only", lambda c: c.isalpha() and c not in "aeiouAEIOU"
        ),
        Part("non_space", "skips the spaces", lambda c: c != " "),
        Part("upper_case", "looks at capital letters only", str.isupper),
    ),
    change=(
        SAME,
        Part("lowered", "makes each lower-case", str.lower),
        Part("raised", "makes each upper-case", str.upper),
        Part("codes", "replaces each by its code point", ord),
        Part(
            "shifted", "replaces each by the next character in Unicode", lambda c: chr(ord(c) + 1)
        ),
        Part("doubled", "writes each twice", lambda c: 2 * c),
    ),
    gather=(
        (LIST, "list"),
        (COUNT, "int"),
        (UNIQUE, "list"),
        (FREQUENCY, "dict"),
        (Part("joined", "returns them as one string", lambda v: "".join(map(str, v))), "str"),
        (
            Part(
                "backwards",
                "returns them as one string, last first",
                lambda v: "".join(map(str, v[::-1])),
            ),
            "str",
        ),
        (
            Part(
                "most_common",
                "returns the most frequent one, the earliest in a tie, or None",
                lambda v: max(in_order(v), key=v.count) if v else None,
            ),
            "object",
        ),
        (
            Part(
                "runs_of",
                "returns a list of equal neighbours counted as tuples (value, length)",
                lambda v: _runs(v),
            ),
            "list",
        ),
    ),
)

"""Functions over records and over the rows of a matrix."""

from dflash.train.prompts.draw import Draw
from dflash.train.prompts.exercises.exercise import WORDS
from dflash.train.prompts.operations.part import (
    ALL,
    COUNT,
    LIST,
    REVERSED,
    SAME,
    SORTED,
    UNIQUE,
    Family,
    Part,
)


def _pairs(draw: Draw) -> list[tuple[str, int]]:
    return [(word, draw.number(0, 20)) for word in draw.some(WORDS, draw.number(2, 5))]


def _rows(draw: Draw) -> list[list[int]]:
    width = draw.number(2, 3)
    return [[draw.number(-5, 9) for _ in range(width)] for _ in range(draw.number(2, 4))]


RECORDS = Family(
    argument="records",
    type_name="list[tuple[str, int]]",
    words="a list of pairs, each a name and a score",
    sample=_pairs,
    keep=(
        ALL,
        Part("passing", "keeps pairs whose score is at least ten", lambda r: r[1] >= 10),
        Part("failing", "keeps pairs whose score is below ten", lambda r: r[1] < 10),
        Part("even_score", "keeps pairs with an even score", lambda r: r[1] % 2 == 0),
        Part(
            "short_name", "keeps pairs with a name of up to five letters", lambda r: len(r[0]) < 6
        ),
        Part("lower_name", "keeps pairs whose name is in lower case", lambda r: r[0].islower()),
    ),
    change=(
        SAME,
        Part("names", "takes the name of each", lambda r: r[0]),
        Part("scores", "takes the score of each", lambda r: r[1]),
        Part("swapped", "swaps name and score", lambda r: (r[1], r[0])),
        Part("labels", "writes each as text in the form name=score", lambda r: f"{r[0]}={r[1]}"),
    ),
    gather=(
        (LIST, "list"),
        (COUNT, "int"),
        (SORTED, "list"),
        (REVERSED, "list"),
        (UNIQUE, "list"),
        (
            Part(
                "highest",
                "returns the greatest one, or None if none is left",
                lambda v: max(v, default=None),
            ),
            "object",
        ),
        (
            Part(
                "split",
                "returns two lists: the first half and the rest",
                lambda v: (v[: len(v) // 2], v[len(v) // 2 :]),
            ),
            "tuple",
        ),
    ),
)
MATRIX = Family(
    argument="matrix",
    type_name="list[list[int]]",
    words="a matrix given as a list of rows",
    sample=_rows,
    keep=(
        ALL,
        Part("positive_sum", "keeps rows whose sum is above zero", lambda r: sum(r) > 0),
        Part("rising", "keeps rows that never decrease", lambda r: list(r) == sorted(r)),
        Part("zero_free", "keeps rows without a zero", lambda r: 0 not in r),
        Part("even_led", "keeps rows that begin with an even number", lambda r: r[0] % 2 == 0),
    ),
    change=(
        SAME,
        Part("row_sums", "replaces each row by its sum", sum),
        Part("row_maxima", "replaces each row by its largest entry", max),
        Part(
            "row_spans",
            "replaces each row by the difference of its largest and smallest entry",
            lambda r: max(r) - min(r),
        ),
        Part("flipped_rows", "reverses each row", lambda r: r[::-1]),
        Part("sorted_rows", "sorts each row", sorted),
        Part("first_entries", "takes the first entry of each row", lambda r: r[0]),
    ),
    gather=(
        (LIST, "list"),
        (COUNT, "int"),
        (SORTED, "list"),
        (REVERSED, "list"),
        (
            Part(
                "greatest",
                "returns the greatest one, or None if there is none",
                lambda v: max(v, default=None),
            ),
            "object",
        ),
    ),
)

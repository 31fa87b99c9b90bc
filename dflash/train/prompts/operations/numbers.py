"""Functions over a list of integers."""

from itertools import pairwise

from dflash.train.prompts.draw import Draw
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


def _numbers(draw: Draw) -> list[int]:
    return [draw.number(-9, 30) for _ in range(draw.number(3, 7))]


def _is_prime(value: int) -> bool:
    return value > 1 and all(value % factor for factor in range(2, int(value**0.5) + 1))


NUMBERS = Family(
    argument="numbers",
    type_name="list[int]",
    words="a list of integers",
    sample=_numbers,
    keep=(
        ALL,
        Part("even", "keeps the even numbers", lambda n: n % 2 == 0),
        Part("odd", "keeps the odd numbers", lambda n: n % 2 == 1),
        Part("positive", "keeps numbers above zero", lambda n: n > 0),
        Part("negative", "keeps numbers below zero", lambda n: n < 0),
        Part("prime", "keeps the prime numbers", _is_prime),
        Part("two_digit", "keeps numbers with exactly two digits", lambda n: 10 <= abs(n) <= 99),
        Part("multiple_of_three", "keeps multiples of three", lambda n: n % 3 == 0),
        Part("above_ten", "drops whatever is ten or less", lambda n: n > 10),
        Part("nonzero", "ignores zeros", lambda n: n != 0),
    ),
    change=(
        SAME,
        Part("squares", "squares each of them", lambda n: n * n),
        Part("doubles", "doubles each of them", lambda n: 2 * n),
        Part("absolute", "takes the absolute value of each", abs),
        Part("negated", "flips the sign of each", lambda n: -n),
        Part(
            "digit_sums",
            "replaces each by the sum of its digits",
            lambda n: sum(map(int, str(abs(n)))),
        ),
        Part("halves", "halves each, rounding down", lambda n: n // 2),
        Part("last_digits", "replaces each by its last digit", lambda n: abs(n) % 10),
        Part("incremented", "adds one to each", lambda n: n + 1),
        Part("as_text", "turns each into text", str),
        Part("binary", "turns each into its binary digits as text", lambda n: format(n, "b")),
    ),
    gather=(
        (LIST, "list"),
        (COUNT, "int"),
        (UNIQUE, "list"),
        (SORTED, "list"),
        (REVERSED, "list"),
        (FREQUENCY, "dict"),
        (
            Part(
                "largest",
                "returns the largest one, or None if there is none",
                lambda v: max(v, default=None),
            ),
            "object",
        ),
        (
            Part(
                "smallest",
                "returns the smallest one, or None if nothing is left",
                lambda v: min(v, default=None),
            ),
            "object",
        ),
        (
            Part(
                "first",
                "returns the first one, or None where there is none",
                lambda v: v[0] if v else None,
            ),
            "object",
        ),
        (
            Part(
                "every_other",
                "returns every second one, beginning with the first",
                lambda v: v[::2],
            ),
            "list",
        ),
        (
            Part(
                "pairs_of",
                "returns the pairs of neighbours as tuples",
                lambda v: list(pairwise(v)),
            ),
            "list",
        ),
        (
            Part(
                "positions_of",
                "returns them as a dictionary keyed by their position",
                lambda v: dict(enumerate(v)),
            ),
            "dict",
        ),
    ),
)

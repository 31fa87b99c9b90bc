"""Exercises over whole numbers: digits, divisors, counting."""

from math import gcd, isqrt

from dflash.train.prompts.exercises.exercise import Exercise, number, small, two_numbers


def _is_prime(value: int) -> bool:
    return value > 1 and all(value % factor for factor in range(2, isqrt(value) + 1))


def _collatz(value: int) -> int:
    count = 0
    while value != 1:
        value = 3 * value + 1 if value % 2 else value // 2
        count += 1
    return count


def _digits_base(value: int, base: int) -> list[int]:
    digits = []
    while value:
        value, digit = divmod(value, base)
        digits.append(digit)
    return digits[::-1]


def _product(values: list[int]) -> int:
    result = 1
    for value in values:
        result *= value
    return result


def _factors(value: int) -> list[int]:
    factors, factor = [], 2
    while value > 1:
        while value % factor == 0:
            factors.append(factor)
            value //= factor
        factor += 1
    return factors


def _ways(steps: int) -> int:
    before, now = 1, 1
    for _ in range(steps - 1):
        before, now = now, before + now
    return now


def _pascal(number: int) -> list[int]:
    row = [1]
    for _ in range(number - 1):
        row = [left + right for left, right in zip([0, *row], [*row, 0], strict=True)]
    return row


NUMBERS = (
    Exercise(
        names="digit_sum|cross_sum",
        signature="n: int",
        result="int",
        task="Return the sum of the decimal digits of n.",
        sample=number,
        solve=lambda k, n: sum(map(int, str(n))),
    ),
    Exercise(
        names="digit_product|multiply_digits",
        signature="n: int",
        result="int",
        task="Multiply all digits of n that are not zero.",
        sample=number,
        solve=lambda k, n: _product([int(d) for d in str(n) if d != "0"]),
    ),
    Exercise(
        names="is_repdigit|all_same_digit",
        signature="n: int",
        result="bool",
        task=("[Tell|Say] whether n is written with one and the same digit throughout."),
        sample=number,
        solve=lambda k, n: len(set(str(n))) == 1,
    ),
    Exercise(
        names="to_base|base_digits|convert",
        signature="n: int",
        result="List[int]",
        task="Return the digits of n in base {k}, the most significant one first.",
        sample=number,
        solve=lambda k, n: _digits_base(n, k),
    ),
    Exercise(
        names="prime_factors|factorise",
        signature="n: int",
        result="List[int]",
        task=("Return the prime factors of n in ascending order, each as often as it divides n."),
        sample=number,
        solve=lambda k, n: _factors(n),
    ),
    Exercise(
        names="primes_below|small_primes",
        signature="n: int",
        result="List[int]",
        task="List all primes less than n.",
        sample=lambda draw: (draw.number(2, 40),),
        solve=lambda k, n: [p for p in range(n) if _is_prime(p)],
    ),
    Exercise(
        names="next_prime|prime_after",
        signature="n: int",
        result="int",
        task="Return the smallest prime that is greater than n.",
        sample=number,
        solve=lambda k, n: next(p for p in range(n + 1, 2 * n + 3) if _is_prime(p)),
    ),
    Exercise(
        names="divisors|all_factors",
        signature="n: int",
        result="List[int]",
        task="Return every positive divisor of n, smallest first.",
        sample=number,
        solve=lambda k, n: [d for d in range(1, n + 1) if n % d == 0],
    ),
    Exercise(
        names="common_divisor|greatest_common",
        signature="a: int, b: int",
        result="int",
        task=("Return the greatest number that divides both a and b. Use Euclid's algorithm."),
        sample=two_numbers,
        solve=lambda k, a, b: gcd(a, b),
    ),
    Exercise(
        names="common_multiple|least_common",
        signature="a: int, b: int",
        result="int",
        task="Return the least positive number that both a and b divide.",
        sample=two_numbers,
        solve=lambda k, a, b: a * b // gcd(a, b),
    ),
    Exercise(
        names="are_coprime|share_no_factor",
        signature="a: int, b: int",
        result="bool",
        task="Return True if no number above 1 divides both.",
        sample=two_numbers,
        solve=lambda k, a, b: gcd(a, b) == 1,
    ),
    Exercise(
        names="collatz_steps|steps_to_one",
        signature="n: int",
        result="int",
        task=(
            "Halve n if it is even, else replace it by 3n + 1. Return how often "
            "this must be done to reach 1."
        ),
        sample=number,
        solve=lambda k, n: _collatz(n),
    ),
    Exercise(
        names="staircase|ways_to_climb",
        signature="n: int",
        result="int",
        task=(
            "A staircase has n steps and you take one or two at a time. Return in "
            "how many ways you can climb it."
        ),
        sample=small,
        solve=lambda k, n: _ways(n),
    ),
    Exercise(
        names="triangle_row|pascal_row",
        signature="n: int",
        result="List[int]",
        task="Return row n of Pascal's triangle; row 1 is [1].",
        sample=lambda draw: (draw.number(1, 7),),
        solve=lambda k, n: _pascal(n),
    ),
    Exercise(
        names="is_square|perfect_square",
        signature="n: int",
        result="bool",
        task="[Check|Decide] whether n is the square of a whole number.",
        sample=number,
        solve=lambda k, n: isqrt(n) ** 2 == n,
    ),
    Exercise(
        names="power_sum|sum_of_powers",
        signature="n: int",
        result="int",
        task="Return 1 + 2**{k} + ... + n**{k}.",
        sample=small,
        solve=lambda k, n: sum(i**k for i in range(1, n + 1)),
        constants=(2, 4),
    ),
    Exercise(
        names="countdown|backwards_from",
        signature="n: int",
        result="str",
        task=("Return the numbers from n down to 1 as one string, separated by commas."),
        sample=small,
        solve=lambda k, n: ",".join(map(str, range(n, 0, -1))),
    ),
    Exercise(
        names="count_bits|ones_in_binary",
        signature="n: int",
        result="int",
        task="Return how many ones the binary form of n has.",
        sample=number,
        solve=lambda k, n: bin(n).count("1"),
    ),
    Exercise(
        names="clock_time|format_minutes",
        signature="minutes: int",
        result="str",
        task="Write a number of minutes as hours and minutes, in the form 2:05.",
        sample=number,
        solve=lambda k, n: f"{n // 60}:{n % 60:02d}",
    ),
    Exercise(
        names="change_coins|fewest_coins",
        signature="cents: int",
        result="int",
        task=(
            "With coins of 1, 5, 10 and 25 cents, return the smallest number of "
            "coins that make up the amount."
        ),
        sample=number,
        solve=lambda k, n: n // 25 + n % 25 // 10 + n % 25 % 10 // 5 + n % 5,
    ),
)

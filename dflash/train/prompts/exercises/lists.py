"""Exercises over lists of numbers."""

from itertools import pairwise

from dflash.train.prompts.exercises.exercise import (
    Exercise,
    floats,
    ints,
    list_and_number,
    naturals,
    two_lists,
)


def _best_run(values: list[int]) -> int:
    best = length = 1
    for before, after in pairwise(values):
        length = length + 1 if after > before else 1
        best = max(best, length)
    return best


def _running(values: list[int]) -> list[int]:
    return [sum(values[: end + 1]) for end in range(len(values))]


LISTS = (
    Exercise(
        names="count_divisible|num_multiples|divisible_by",
        signature="numbers: List[int]",
        result="int",
        task=("[Count|Return the number of] [elements|entries] of numbers that {k} divides."),
        sample=ints,
        solve=lambda k, xs: sum(x % k == 0 for x in xs),
    ),
    Exercise(
        names="without_multiples|drop_divisible",
        signature="values: list",
        result="list",
        task=(
            "[Remove|Leave out] every value that is a multiple of {k}; keep the "
            "order of the others."
        ),
        sample=ints,
        solve=lambda k, xs: [x for x in xs if x % k],
    ),
    Exercise(
        names="chunk|in_groups|split_evenly",
        signature="items: list",
        result="list",
        task="Cut the list into pieces of {k} items. The last piece may be shorter.",
        sample=naturals,
        solve=lambda k, xs: [xs[i : i + k] for i in range(0, len(xs), k)],
        constants=(2, 4),
    ),
    Exercise(
        names="rotate|turn_list|shift_left",
        signature="items: list, steps: int",
        result="list",
        task=(
            "Move the first items to the end, as many as steps says. More steps "
            "than items go round again."
        ),
        sample=list_and_number,
        solve=lambda k, xs, n: xs[n % len(xs) :] + xs[: n % len(xs)],
    ),
    Exercise(
        names="pair_sum_exists|has_pair",
        signature="numbers: List[int], target: int",
        result="bool",
        task="[Tell|Check] whether two entries at different places add up to target.",
        sample=list_and_number,
        solve=lambda k, xs, n: any(x + y == n for i, x in enumerate(xs) for y in xs[i + 1 :]),
    ),
    Exercise(
        names="running_totals|cumulative|prefix_sums",
        signature="numbers: List[int]",
        result="List[int]",
        task=(
            "[At each place|For every position] give the sum of all numbers up to and including it."
        ),
        sample=ints,
        solve=lambda k, xs: _running(xs),
    ),
    Exercise(
        names="differences|gaps|steps_between",
        signature="numbers: List[int]",
        result="List[int]",
        task=(
            "Return how much each number exceeds the one before it. The result is "
            "one shorter than the input."
        ),
        sample=ints,
        solve=lambda k, xs: [b - a for a, b in pairwise(xs)],
    ),
    Exercise(
        names="peaks|local_maxima|hilltops",
        signature="heights: List[int]",
        result="List[int]",
        task=("Return the heights that are greater than both neighbours. The ends never count."),
        sample=naturals,
        solve=lambda k, xs: [b for a, b, c in zip(xs, xs[1:], xs[2:], strict=False) if a < b > c],
    ),
    Exercise(
        names="longest_climb|best_streak",
        signature="numbers: List[int]",
        result="int",
        task=(
            "Return the length of the longest stretch in which each number is "
            "greater than the one before."
        ),
        sample=naturals,
        solve=lambda k, xs: _best_run(xs),
    ),
    Exercise(
        names="interleave|zip_lists|alternate",
        signature="first: list, second: list",
        result="list",
        task=(
            "Take items from both lists in turns, starting with first. When one "
            "runs out, append the rest of the other."
        ),
        sample=two_lists,
        solve=lambda k, xs, ys: (
            [v for pair in zip(xs, ys, strict=False) for v in pair] + xs[len(ys) :] + ys[len(xs) :]
        ),
    ),
    Exercise(
        names="in_both|shared_items|intersection",
        signature="first: List[int], second: List[int]",
        result="List[int]",
        task="Return the sorted numbers that occur in both lists, each once.",
        sample=two_lists,
        solve=lambda k, xs, ys: sorted(set(xs) & set(ys)),
    ),
    Exercise(
        names="only_in_one|exclusive",
        signature="first: List[int], second: List[int]",
        result="List[int]",
        task=("Return, in ascending order, the values that one list has and the other lacks."),
        sample=two_lists,
        solve=lambda k, xs, ys: sorted(set(xs) ^ set(ys)),
    ),
    Exercise(
        names="dot|inner_product|weighted_sum",
        signature="first: List[int], second: List[int]",
        result="int",
        task=(
            "Multiply the lists entry by entry and add up the products. Surplus "
            "entries of the longer list are ignored."
        ),
        sample=two_lists,
        solve=lambda k, xs, ys: sum(x * y for x, y in zip(xs, ys, strict=False)),
    ),
    Exercise(
        names="clamp_all|limit_values",
        signature="numbers: List[int]",
        result="List[int]",
        task=("Replace whatever is above {k} by {k}, and whatever is below zero by zero."),
        sample=ints,
        solve=lambda k, xs: [max(0, min(k, x)) for x in xs],
        constants=(5, 25),
    ),
    Exercise(
        names="move_zeros|zeros_last",
        signature="numbers: List[int]",
        result="List[int]",
        task=("Bring all zeros to the end without changing the order of the other numbers."),
        sample=lambda draw: ([draw.number(0, 3) for _ in range(draw.number(3, 8))],),
        solve=lambda k, xs: [x for x in xs if x] + [0] * xs.count(0),
    ),
    Exercise(
        names="second_smallest|runner_up",
        signature="numbers: List[int]",
        result="object",
        task=(
            "Return the second smallest of the different values, or None if there "
            "are fewer than two."
        ),
        sample=naturals,
        solve=lambda k, xs: sorted(set(xs))[1] if len(set(xs)) > 1 else None,
    ),
    Exercise(
        names="most_common|favourite|mode_of",
        signature="numbers: List[int]",
        result="int",
        task="Return the number that occurs most often; of several, the smallest.",
        sample=naturals,
        solve=lambda k, xs: min(xs, key=lambda x: (-xs.count(x), x)),
    ),
    Exercise(
        names="middle|median_value",
        signature="numbers: List[float]",
        result="float",
        task=(
            "Return the median. For an even number of entries it is the mean of the"
            " two in the middle."
        ),
        sample=floats,
        solve=lambda k, xs: (sorted(xs)[len(xs) // 2] + sorted(xs)[(len(xs) - 1) // 2]) / 2,
    ),
    Exercise(
        names="spread|value_range",
        signature="numbers: List[float]",
        result="float",
        task="Return the difference between the largest and the smallest number.",
        sample=floats,
        solve=lambda k, xs: max(xs) - min(xs),
    ),
    Exercise(
        names="round_all|to_quarters",
        signature="numbers: List[float]",
        result="List[int]",
        task=("Drop the fractional part of each number, towards zero, and multiply it by {k}."),
        sample=floats,
        solve=lambda k, xs: [int(x) * k for x in xs],
    ),
    Exercise(
        names="rescale|percentages",
        signature="numbers: List[int]",
        result="List[int]",
        task=(
            "Express each entry as a whole percentage of the largest one, rounded "
            "down. All zeros if the largest is zero."
        ),
        sample=naturals,
        solve=lambda k, xs: [100 * x // max(xs) if max(xs) else 0 for x in xs],
    ),
)

"""Exercises over dictionaries, grids, brackets, walks and intervals."""

from dflash.train.prompts.exercises.exercise import (
    Exercise,
    brackets,
    grid,
    intervals,
    signs,
    stock,
    words,
)


def _merged(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _is_closed(text: str) -> bool:
    partner, stack = {")": "(", "]": "["}, []
    for sign in text:
        if sign in "([":
            stack.append(sign)
        elif not stack or stack.pop() != partner[sign]:
            return False
    return not stack


def _walk(steps: str) -> tuple[int, int]:
    return (steps.count("E") - steps.count("W"), steps.count("N") - steps.count("S"))


TABLES = (
    Exercise(
        names="group_by_first|index_words",
        signature="words: List[str]",
        result="Dict[str, List[str]]",
        task="Group the words by their first letter in lower case. Keep their order.",
        sample=words,
        solve=lambda k, ws: {
            i: [w for w in ws if w[0].lower() == i] for i in dict.fromkeys(w[0].lower() for w in ws)
        },
    ),
    Exercise(
        names="length_table|word_lengths",
        signature="words: List[str]",
        result="Dict[str, int]",
        task="Map each word to its length.",
        sample=words,
        solve=lambda k, ws: {w: len(w) for w in ws},
    ),
    Exercise(
        names="cheapest|least_key",
        signature="stock: Dict[str, int]",
        result="str",
        task=("Return the key with the smallest value; of several, the first in the alphabet."),
        sample=stock,
        solve=lambda k, d: min(d, key=lambda x: (d[x], x)),
    ),
    Exercise(
        names="in_stock|large_entries",
        signature="stock: Dict[str, int]",
        result="List[str]",
        task="Return the keys whose value is at least {k}, sorted.",
        sample=stock,
        solve=lambda k, d: sorted(x for x in d if d[x] >= k),
        constants=(5, 20),
    ),
    Exercise(
        names="invert|swap_keys",
        signature="stock: Dict[str, int]",
        result="Dict[int, List[str]]",
        task=("Turn the dictionary round: map each value to the sorted list of its keys."),
        sample=stock,
        solve=lambda k, d: {v: sorted(x for x in d if d[x] == v) for v in d.values()},
    ),
    Exercise(
        names="total_stock|sum_values",
        signature="stock: Dict[str, int]",
        result="int",
        task="Add up all values, leaving out those below {k}.",
        sample=stock,
        solve=lambda k, d: sum(v for v in d.values() if v >= k),
    ),
    Exercise(
        names="transpose|flip_grid",
        signature="grid: List[List[int]]",
        result="List[List[int]]",
        task="Turn rows into columns.",
        sample=grid,
        solve=lambda k, g: [list(r) for r in zip(*g, strict=True)],
    ),
    Exercise(
        names="diagonal|main_diagonal",
        signature="grid: List[List[int]]",
        result="int",
        task=("Add up the entries on the diagonal from the top left to the bottom right."),
        sample=grid,
        solve=lambda k, g: sum(g[i][i] for i in range(len(g))),
    ),
    Exercise(
        names="border_sum|rim",
        signature="grid: List[List[int]]",
        result="int",
        task="Add up the entries in the first row and in the last row.",
        sample=grid,
        solve=lambda k, g: sum(g[0]) + sum(g[-1]),
    ),
    Exercise(
        names="column_maxima|best_of_columns",
        signature="grid: List[List[int]]",
        result="List[int]",
        task="Return the largest entry of each column.",
        sample=grid,
        solve=lambda k, g: [max(c) for c in zip(*g, strict=True)],
    ),
    Exercise(
        names="row_with_largest_sum|heaviest_row",
        signature="grid: List[List[int]]",
        result="int",
        task=("Return the index of the row whose entries add up to most; of several, the first."),
        sample=grid,
        solve=lambda k, g: max(range(len(g)), key=lambda i: (sum(g[i]), -i)),
    ),
    Exercise(
        names="is_closed|brackets_match",
        signature="text: str",
        result="bool",
        task=("Tell whether every bracket is closed by one of its own kind, in the right order."),
        sample=brackets,
        solve=lambda k, s: _is_closed(s),
    ),
    Exercise(
        names="depth|deepest_level",
        signature="text: str",
        result="int",
        task=(
            "Return the largest number of round brackets that are open at once, "
            "reading from the left. Ignore everything else."
        ),
        sample=brackets,
        solve=lambda k, s: max(
            s[: i + 1].count("(") - s[: i + 1].count(")") for i in range(len(s))
        ),
    ),
    Exercise(
        names="final_position|walk",
        signature="steps: str",
        result="Tuple[int, int]",
        task=(
            "Start at (0, 0). N adds one to y, S takes one away; E adds one to x, W"
            " takes one away. Return the last position."
        ),
        sample=signs,
        solve=lambda k, s: _walk(s),
    ),
    Exercise(
        names="comes_home|is_round_trip",
        signature="steps: str",
        result="bool",
        task=(
            "The letters N, E, S, W are steps on a grid. Return True if the walk "
            "ends where it began."
        ),
        sample=signs,
        solve=lambda k, s: _walk(s) == (0, 0),
    ),
    Exercise(
        names="merge_intervals|join_ranges",
        signature="intervals: List[Tuple[int, int]]",
        result="List[Tuple[int, int]]",
        task=("Join intervals that touch or overlap. Return them sorted by their start."),
        sample=intervals,
        solve=lambda k, xs: _merged(xs),
    ),
    Exercise(
        names="total_cover|covered_length",
        signature="intervals: List[Tuple[int, int]]",
        result="int",
        task=(
            "Return the length that the intervals cover together. What several of "
            "them cover counts once."
        ),
        sample=intervals,
        solve=lambda k, xs: sum(e - s for s, e in _merged(xs)),
    ),
    Exercise(
        names="longest_interval|widest",
        signature="intervals: List[Tuple[int, int]]",
        result="Tuple[int, int]",
        task="Return the longest interval; of several, the first.",
        sample=intervals,
        solve=lambda k, xs: max(xs, key=lambda x: x[1] - x[0]),
    ),
)

"""Exercises over words and sentences."""

from dflash.train.prompts.exercises.exercise import (
    WORDS,
    Exercise,
    sentence,
    two_words,
    word,
    words,
)


def _squeezed(text: str) -> str:
    return "".join(sign for at, sign in enumerate(text) if at == 0 or text[at - 1] != sign)


def _shift(text: str, by: int) -> str:
    return "".join(chr((ord(c) - 97 + by) % 26 + 97) if "a" <= c <= "z" else c for c in text)


def _prefix(first: str, second: str) -> int:
    same = [a == b for a, b in zip(first, second, strict=False)]
    return same.index(False) if False in same else len(same)


def _encoded(text: str) -> str:
    kept = ""
    for sign in text:
        head, count = (kept[:-1], int(kept[-1])) if kept[-2:-1] == sign else (kept + sign, 0)
        kept = f"{head}{count + 1}"
    return kept


TEXTS = (
    Exercise(
        names="vowel_count|num_vowels",
        signature="text: str",
        result="int",
        task=("Return how many letters of the text are a, e, i, o or u, in either case."),
        sample=sentence,
        solve=lambda k, s: sum(c in "aeiou" for c in s.lower()),
    ),
    Exercise(
        names="acronym|initials",
        signature="sentence: str",
        result="str",
        task="Join the first letters of all words, as capitals.",
        sample=sentence,
        solve=lambda k, s: "".join(w[0] for w in s.split()).upper(),
    ),
    Exercise(
        names="reverse_words|mirror_sentence",
        signature="sentence: str",
        result="str",
        task="Return the words in the opposite order, each spelt as before.",
        sample=sentence,
        solve=lambda k, s: " ".join(s.split()[::-1]),
    ),
    Exercise(
        names="longest_word|widest_word",
        signature="sentence: str",
        result="str",
        task="Return the longest word; of several, the first.",
        sample=sentence,
        solve=lambda k, s: max(s.split(), key=len),
    ),
    Exercise(
        names="title_case|capitalise_words",
        signature="sentence: str",
        result="str",
        task="Begin every word with a capital and write the rest of it small.",
        sample=sentence,
        solve=lambda k, s: " ".join(w.capitalize() for w in s.split()),
    ),
    Exercise(
        names="long_words|filter_by_length",
        signature="sentence: str",
        result="List[str]",
        task="Return the words that have more than {k} letters.",
        sample=sentence,
        solve=lambda k, s: [w for w in s.split() if len(w) > k],
        constants=(3, 5),
    ),
    Exercise(
        names="letter_positions|find_letter",
        signature="word: str, letter: str",
        result="List[int]",
        task="Return every index at which letter stands in word.",
        sample=lambda draw: (draw.one(WORDS), draw.one("aeort")),
        solve=lambda k, w, c: [i for i, x in enumerate(w) if x == c],
    ),
    Exercise(
        names="is_mirror|reads_both_ways",
        signature="word: str",
        result="bool",
        task="Tell whether the word is the same backwards, ignoring case.",
        sample=word,
        solve=lambda k, w: w.lower() == w.lower()[::-1],
    ),
    Exercise(
        names="same_letters|is_anagram_of",
        signature="first: str, second: str",
        result="bool",
        task=(
            "Return True if both words consist of the same letters in any order, "
            "whatever their case."
        ),
        sample=two_words,
        solve=lambda k, a, b: sorted(a.lower()) == sorted(b.lower()),
    ),
    Exercise(
        names="common_letters|shared_letters",
        signature="first: str, second: str",
        result="str",
        task=("Return the letters that occur in both words, in alphabetical order and each once."),
        sample=two_words,
        solve=lambda k, a, b: "".join(sorted(set(a.lower()) & set(b.lower()))),
    ),
    Exercise(
        names="common_prefix|shared_start",
        signature="first: str, second: str",
        result="str",
        task="Return the longest beginning that both words share; it may be empty.",
        sample=lambda draw: tuple(
            draw.some(("flower", "flow", "flour", "flat", "planet", "plane", "plan", "play"), 2)
        ),
        solve=lambda k, a, b: a[: _prefix(a, b)],
    ),
    Exercise(
        names="squeeze|drop_repeats",
        signature="text: str",
        result="str",
        task="Where a character follows itself, keep only one of the run.",
        sample=lambda draw: (
            "".join(draw.one("abc") * draw.number(1, 3) for _ in range(draw.number(2, 4))),
        ),
        solve=lambda k, s: _squeezed(s),
    ),
    Exercise(
        names="encode_runs|run_lengths",
        signature="text: str",
        result="str",
        task=("Replace each run of one character by the character and the run's length."),
        sample=lambda draw: (
            "".join(draw.one("xyz") * draw.number(1, 4) for _ in range(draw.number(2, 4))),
        ),
        solve=lambda k, s: _encoded(s),
    ),
    Exercise(
        names="shift_letters|simple_cipher",
        signature="text: str",
        result="str",
        task=(
            "Move each small letter {k} places forward in the alphabet, from z on "
            "to a. Leave other characters alone."
        ),
        sample=word,
        solve=lambda k, s: _shift(s, k),
    ),
    Exercise(
        names="every_kth|skip_letters",
        signature="text: str",
        result="str",
        task="Return the characters at the positions 0, {k}, twice {k} and so on.",
        sample=sentence,
        solve=lambda k, s: s[::k],
        constants=(2, 4),
    ),
    Exercise(
        names="swap_ends|exchange_ends",
        signature="word: str",
        result="str",
        task="Exchange the first and the last letter of the word.",
        sample=word,
        solve=lambda k, w: w[-1] + w[1:-1] + w[0],
    ),
    Exercise(
        names="pad_words|same_width",
        signature="words: List[str]",
        result="List[str]",
        task=("Fill each word up with dots on the right, so that all are as long as the longest."),
        sample=words,
        solve=lambda k, ws: [w.ljust(max(map(len, ws)), ".") for w in ws],
    ),
    Exercise(
        names="by_length|sort_words",
        signature="words: List[str]",
        result="List[str]",
        task="Sort by length; words of equal length come in alphabetical order.",
        sample=words,
        solve=lambda k, ws: sorted(ws, key=lambda w: (len(w), w)),
    ),
)

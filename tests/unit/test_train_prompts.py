"""Prompts of our own: seeded, varied, whole, and apart from what they must not meet."""

import ast
import itertools
import os
import re
from pathlib import Path

import pytest

from dflash.errors import ConfigError
from dflash.train import overlap
from dflash.train.prompts import __main__ as command
from dflash.train.prompts import mix, passages
from dflash.train.prompts.draw import Draw, Material, Split, Topic, side_of
from dflash.train.prompts.exercises.choice import EXERCISES
from dflash.train.prompts.file import line_of, read_prompts
from dflash.train.prompts.mix import KINDS, Prompt, held_out, prompts
from dflash.train.prompts.operations.operation import operation
from dflash.train.prompts.template import fill, paragraphs, pools, weighted_paragraphs
from dflash.train.prompts.topics import written_topics
from dflash.train.prompts.wordnet import wordnet_topics

PASSAGES = tuple(f"Passage {index} tells of one thing, and then of another." for index in range(64))
MATERIAL = Material(written_topics(), PASSAGES)
TASKS_DIR = os.environ.get("DFLASH_TASKS_DIR")


def first(count, seed=1, split=Split.TRAINING):
    return list(itertools.islice(prompts(seed, split, MATERIAL), count))


@pytest.fixture
def few_passages(monkeypatch):
    """Reading every installed package takes seconds."""
    monkeypatch.setattr(mix, "documentation_passages", lambda: PASSAGES)
    mix.material.cache_clear()
    yield
    mix.material.cache_clear()


def test_a_seed_gives_the_same_prompts_and_another_seed_others():
    assert first(300) == first(300)
    assert len(set(first(300)) & set(first(300, seed=2))) < 30


def test_no_prompt_comes_twice():
    turns = [prompt.turns[0] for prompt in first(5000)]

    assert len(set(turns)) == len(turns)


def test_kinds_come_mingled_in_their_shares():
    kinds = [prompt.kind for prompt in first(4000)]

    for kind, (_, share) in KINDS.items():
        assert kinds.count(kind) / len(kinds) == pytest.approx(share / 100, abs=0.03)
    assert set(kinds[:100]) == set(KINDS)


def test_a_third_of_the_chats_have_a_second_turn():
    chats = [len(prompt.turns) for prompt in first(4000) if prompt.kind == "chat"]

    assert chats.count(2) / len(chats) == pytest.approx(1 / 3, abs=0.05)
    assert {len(prompt.turns) for prompt in first(4000) if prompt.kind != "chat"} == {1}


def test_training_and_held_out_prompts_share_neither_prompt_nor_topic_nor_passage():
    training = [turn for prompt in first(3000) for turn in prompt.turns[:1]]
    others = [prompt.turns[0] for prompt in held_out(1, 400, MATERIAL)]

    assert {side_of(turn) for turn in training} == {Split.TRAINING}
    assert {side_of(turn) for turn in others} == {Split.HELD_OUT}
    for passage in PASSAGES:
        is_held_out = side_of(passage) is Split.HELD_OUT
        assert not any(passage in turn for turn in (training if is_held_out else others))
    assert any(passage in turn for passage in PASSAGES for turn in others)
    for topic in written_topics():
        if side_of(topic.words) is Split.TRAINING and len(topic.words.split()) > 2:
            assert not any(topic.words in turn for turn in others)


def test_the_default_sample_of_benchmarks_is_held_out_and_repeats(few_passages):
    sample = mix.held_out_prompts(50)

    assert sample == mix.held_out_prompts(60)[:50]
    assert {side_of(prompt.turns[0]) for prompt in sample} == {Split.HELD_OUT}


def test_no_template_leaves_its_notation_in_a_prompt():
    for prompt in first(6000):
        if prompt.kind in ("arithmetic", "chat", "rewriting", "extraction"):
            text = " ".join(prompt.turns).replace("\\boxed{answer}", "")
            assert not re.search(r"\{[a-z]|\||  \w|\[[a-z]", text), text
            assert prompt.turns[0] == prompt.turns[0].strip()


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.names)
def test_the_examples_of_an_exercise_are_values_that_can_be_typed_in(exercise):
    draw = Draw(3, Split.TRAINING, MATERIAL)
    for _ in range(40):
        arguments = exercise.sample(draw)
        result = exercise.solve(draw.number(*exercise.constants), *arguments)
        assert len(arguments) == sum(":" in part for part in exercise.signature.split(", "))
        for value in (*arguments, result):
            assert ast.literal_eval(repr(value)) == value


@pytest.mark.parametrize(
    ("name", "constant", "arguments", "expected"),
    [
        ("merge_intervals", 2, ([(5, 7), (1, 3), (2, 5)],), [(1, 7)]),
        ("total_cover", 2, ([(0, 4), (2, 6), (9, 10)],), 7),
        ("encode_runs", 2, ("aaabcc",), "a3b1c2"),
        ("squeeze", 2, ("aabbba",), "aba"),
        ("collatz_steps", 2, (6,), 8),
        ("staircase", 2, (4,), 5),
        ("triangle_row", 2, (5,), [1, 4, 6, 4, 1]),
        ("prime_factors", 2, (84,), [2, 2, 3, 7]),
        ("to_base", 3, (11,), [1, 0, 2]),
        ("longest_climb", 2, ([3, 1, 2, 5, 4],), 3),
        ("is_closed", 2, ("([)]",), False),
        ("depth", 2, ("(()[(",), 2),
        ("middle", 2, ([4.0, 1.0, 2.0, 3.0],), 2.5),
        ("change_coins", 2, (68,), 7),
        ("shift_letters", 3, ("xyz!",), "abc!"),
        ("interleave", 2, ([1, 2, 3], [9]), [1, 9, 2, 3]),
        ("next_prime", 2, (13,), 17),
        ("second_smallest", 2, ([5, 1, 1, 4],), 4),
    ],
)
def test_solutions_are_right(name, constant, arguments, expected):
    (exercise,) = (each for each in EXERCISES if name in each.names.split("|"))

    assert exercise.solve(constant, *arguments) == expected


def test_a_composed_function_does_what_its_sentences_say():
    draw = Draw(5, Split.TRAINING, MATERIAL)
    wanted = next(
        each for each in iter(lambda: operation(draw), None) if each.name == "sorted_squares_even"
    )

    assert wanted.sentences == (
        "keeps the even numbers",
        "squares each of them",
        "returns them in ascending order",
    )
    assert wanted.apply([4, -6, 3, 2]) == [4, 16, 36]


def test_templates_choose_repeat_and_step():
    draw = Draw(7, Split.TRAINING, MATERIAL)
    names = pools("name = Ada; Bob\n    thing = red\n        box; tin")
    assert names == {"name": ("Ada", "Bob"), "thing": ("red box", "tin")}
    template = "{name} [gives|[sells|lends]] {name2} {n=20-80/5} {thing}: {n} \\[x\\] {q}"
    for _ in range(50):
        giver, verb, taker, count, *thing, again, formula, rest = fill(
            template, draw, names
        ).split()
        assert {giver, taker} == {"Ada", "Bob"}
        assert verb in ("gives", "sells", "lends")
        assert " ".join(thing) in ("red box:", "tin:")
        assert count == again
        assert int(count) in range(20, 81, 5)
        assert (formula, rest) == ("\\[x\\]", "{q}")


def test_paragraphs_are_joined_and_weighed():
    assert paragraphs("\n    one\n    two\n\n    three\n") == ("one two", "three")
    assert weighted_paragraphs("2 a b\n\n0.5 c") == (("a b", 2.0), ("c", 0.5))


def test_passages_are_prose_out_of_docstrings(monkeypatch, tmp_path):
    folder = tmp_path / "made_up_package"
    folder.mkdir()
    prose = "Every word of this sentence is here to be counted, " * 4 + "and it ends."
    (folder / "__init__.py").write_text(f'"""Short.\n\n{prose}\n\n>>> {prose}\n"""\n')
    (folder / "broken.py").write_text("def (")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(passages, "LICENCES", {"made_up_package": "MIT", "is_not_installed": "MIT"})
    monkeypatch.setattr(passages, "_STANDARD_LIBRARY", "")

    assert passages.documentation_passages() == (prose,)


def test_topics_of_a_wordnet_database_are_known_plain_nouns(tmp_path):
    lines = [
        b'00000000 06 n 01 lamp 0 000 | gives light; "a lamp"  \n',
        b"00000041 06 n 01 relic 0 000 | never met in a text  \n",
        b"00000081 18 n 01 baker 0 000 | a person, so no topic  \n",
        b"00000123 12 n 01 joy 0 001 @ 00000000 n 0000 | a feeling  \n",
    ]
    offsets = [sum(map(len, lines[:index])) for index in range(len(lines))]
    (tmp_path / "data.noun").write_bytes(b"".join(lines))
    (tmp_path / "index.noun").write_text(
        "  1 licence text\n"
        f"baker n 1 0 1 1 {offsets[2]:08d}  \n"
        f"joy n 1 1 @ 1 3 {offsets[3]:08d}  \n"
        f"lamp n 1 0 1 2 {offsets[0]:08d}  \n"
        f"relic n 1 0 1 0 {offsets[1]:08d}  \n"
    )

    assert wordnet_topics(tmp_path) == (Topic("joy", "a feeling"), Topic("lamp", "gives light"))


def test_a_folder_without_a_database_is_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match=r"--wordnet is .* leave the option out"):
        wordnet_topics(tmp_path)


def test_prompts_survive_their_file(tmp_path):
    written = [*first(200), Prompt("chat", ("line\u2028separator", "é"))]
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(line_of(prompt) + "\n" for prompt in written), encoding="utf-8")

    assert list(read_prompts(file)) == written


@pytest.mark.parametrize(
    "line",
    ["no JSON", "[]", '{"turns": 3}', '{"turns": []}', '{"turns": "a"}', '{"turns": [1]}', "{}"],
)
def test_a_line_that_is_no_prompt_is_named(tmp_path, line):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"turns": ["fine"]}\n' + line + "\n")

    with pytest.raises(ConfigError, match="line 2: expected"):
        list(read_prompts(file))


TASK = "Three old ships sail west at dawn, and each of them carries 40 barrels of salt."


@pytest.fixture
def tasks(tmp_path):
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "made-up.jsonl").write_text(line_of(Prompt("task", ("Short.", TASK))) + "\n")
    return folder


def test_a_planted_run_of_13_words_is_found_whatever_its_case_and_commas(tmp_path, tasks, capsys):
    file = tmp_path / "prompts.jsonl"
    planted = "so: THREE old ships sail; west at dawn and (each of them) carries 40... Or not?"
    file.write_text(line_of(Prompt("chat", ("Hello.", planted))) + "\n")

    assert overlap.main([str(file), "--tasks", str(tasks)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("1 shared runs of 13 words\n")
    assert "made-up.jsonl: three old ships sail west at dawn and each of them carries 40\n" in out


def test_a_run_of_12_words_may_be_shared(tmp_path, tasks, capsys):
    file = tmp_path / "prompts.jsonl"
    file.write_text(line_of(Prompt("chat", (" ".join(TASK.split()[:12]) + " nothing",))) + "\n")

    assert overlap.main([str(file), "--tasks", str(tasks)]) == 0
    assert capsys.readouterr().out == "0 shared runs of 13 words\n"


def test_an_empty_folder_of_tasks_proves_nothing_and_is_refused(tmp_path, capsys):
    file = tmp_path / "prompts.jsonl"
    file.write_text("")

    assert overlap.main([str(file), "--tasks", str(tmp_path / "none")]) == 1
    assert "holds no .jsonl file" in capsys.readouterr().err


def test_the_command_drops_what_shares_a_run_with_a_task(tmp_path, tasks, few_passages, capsys):
    free, kept = tmp_path / "free.jsonl", tmp_path / "kept.jsonl"
    assert command.main(["--count", "30", "--seed", "4", "--out", str(free)]) == 0
    wanted = list(read_prompts(free))
    long = next(prompt for prompt in wanted if any(overlap.grams_in(prompt)))
    (tasks / "planted.jsonl").write_text(line_of(long) + "\n")

    arguments = ["--count", "30", "--seed", "4", "--out", str(kept), "--tasks", str(tasks)]
    assert command.main(arguments) == 0

    assert "30 prompts written, 1 dropped" in capsys.readouterr().out
    rest = [prompt for prompt in wanted if prompt != long]
    assert list(read_prompts(kept))[:29] == rest
    assert overlap.main([str(kept), "--tasks", str(tasks)]) == 0


@pytest.mark.skipif(TASKS_DIR is None, reason="DFLASH_TASKS_DIR names no folder of task files")
def test_no_prompt_shares_13_words_with_the_published_tasks():
    forbidden = overlap.grams_of_tasks(Path(str(TASKS_DIR)))
    for prompt in (*first(20_000), *held_out(1, 2000, MATERIAL)):
        assert not any(gram in forbidden for gram in overlap.grams_in(prompt)), prompt

"""Calls in an answer's text: the same in every split of it, and what is none stays text."""

import itertools
import json
import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.openai.generation import Answer
from deployments.openai.tokenizer import TextTokenizer
from deployments.openai.tool_calls import CallReader
from deployments.wire import Step
from tests.rigs.byte_tokenizer import byte_level_tokenizer, tokenizer_files

NAMES = {"f", "look_up"}
Call = tuple[str, str]


def call(arguments: str = '{"a": 1}', name: str = "f") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def read(pieces: Sequence[str], most_calls: int | None = None) -> tuple[str, list[Call]]:
    """Return the text and the calls that a client puts together."""
    ids = itertools.count()
    reader = CallReader(NAMES, most_calls, lambda: f"call_{next(ids)}")
    text, calls = "", []
    for number, piece in enumerate(pieces, start=1):
        found = reader.push(piece, is_end=number == len(pieces))
        text += found.text
        for delta in found.calls:
            if delta.name is not None:
                assert (delta.index, delta.call_id) == (len(calls), f"call_{len(calls)}")
                calls.append((delta.name, ""))
            else:
                assert delta.index == len(calls) - 1
            calls[-1] = (calls[-1][0], calls[-1][1] + delta.arguments)
    assert reader.num_calls == len(calls)
    return text, calls


CALLS = {
    "one": (call(), "", [("f", '{"a": 1}')]),
    "text before and after": (f"So.\n{call()}\n done", "So.\n done", [("f", '{"a": 1}')]),
    "two": (f"{call()}\n{call('{}', 'look_up')}", "", [("f", '{"a": 1}'), ("look_up", "{}")]),
    "touching": (call() + call("{}"), "", [("f", '{"a": 1}'), ("f", "{}")]),
    "white space around": (f"\n\n{call()}\n\n", "", [("f", '{"a": 1}')]),
    "nested": (call('{"a": {"b": [1, {"c": "}"}]}}'), "", [("f", '{"a": {"b": [1, {"c": "}"}]}}')]),
    "tags in a string": (
        call('{"a": "</tool_call> <tool_call> \\" \\\\"}'),
        "",
        [("f", '{"a": "</tool_call> <tool_call> \\" \\\\"}')],
    ),
    "other order": (
        '<tool_call>{"arguments": {"é": "</tool"}, "name": "f"}</tool_call>',
        "",
        [("f", '{"é": "</tool"}')],
    ),
    "no arguments": ('<tool_call>{"name": "f"}</tool_call>', "", [("f", "{}")]),
    "no end": ('<tool_call>{"arguments": {}, "name": "f"}', "", [("f", "{}")]),
    "cut in its arguments": (
        '<tool_call>{"name": "f", "arguments": {"a": "x',
        "",
        [("f", '{"a": "x')],
    ),
    "behind a false one": (f"<tool_call> {call()}", "<tool_call>", [("f", '{"a": 1}')]),
    "broken arguments": (
        f"{call(chr(123) + chr(34) + 'a' + chr(34) + ': 1')[:-13]}</tool_call> and {call()}",
        " and",
        None,
    ),
}
TEXTS = [
    "",
    "no call at all",
    "a < b and <tool but not one, <tool_call",
    "<tool_call>",
    "<tool_call></tool_call>",
    "</tool_call>",
    "<tool_call>\nnot json\n</tool_call>\n",
    call(name="unknown"),
    call().replace("tool_call", "tool"),
    '<tool_call>{"name": "f", "arguments": "{}"}</tool_call>',
    '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
    '<tool_call>{"name": ["f"], "arguments": {}}</tool_call>',
    '<tool_call>["f"]</tool_call>',
    '<tool_call>{"name": "f", "arg',
    " \n white space \n ",
    "é <tool_call>仍</tool_call> 😀",
]


def cuts(text: str) -> Iterator[list[str]]:
    """Yield the text whole, letter by letter, in every two parts, and in random ones."""
    yield [text]
    yield [*text] or [""]
    for place in range(len(text) + 1):
        yield [text[:place], text[place:]]
    draw = random.Random(len(text))
    for _ in range(200):
        places = sorted(draw.randint(0, len(text)) for _ in range(draw.randint(1, 9)))
        yield [text[a:b] for a, b in itertools.pairwise([0, *places, len(text)])]


@pytest.mark.parametrize(("text", "shown", "calls"), CALLS.values(), ids=CALLS)
def test_calls_are_the_same_in_every_split(text: str, shown: str, calls: list[Call] | None):
    whole = read([text])
    assert whole[0] == shown
    assert calls is None or whole[1] == calls
    for pieces in cuts(text):
        assert read(pieces) == whole, pieces


@pytest.mark.parametrize("text", TEXTS)
def test_what_looks_like_a_call_and_is_none_is_text_unchanged(text: str):
    for pieces in cuts(text):
        assert read(pieces) == (text, []), pieces


def test_broken_arguments_are_passed_on_as_they_were_written():
    broken = '<tool_call>{"name": "f", "arguments": {"a": "x\n</tool_call> next'
    for pieces in cuts(broken):
        assert read(pieces) == (" next", [("f", '{"a": "x\n')]), pieces


def test_the_name_goes_out_first_and_the_arguments_as_they_come():
    reader = CallReader(NAMES)
    head, rest = '<tool_call>\n{"name": "f", "arguments": ', '{"city": "Paris"}'
    assert reader.push(head).calls == ()
    first, start = reader.push(rest[:1]).calls
    assert (first.name, first.arguments, start.arguments) == ("f", "", "{")
    assert [reader.push(letter).calls[0].arguments for letter in rest[1:]] == [*rest[1:]]
    assert reader.push("}\n</tool_call>") == ("", ())


def test_an_answer_that_may_have_one_call_ends_with_it():
    text = f"{call()}\n{call()}"
    for pieces in cuts(text):
        assert read(pieces, most_calls=1) == ("", [("f", '{"a": 1}')]), pieces


FRAGMENTS = st.sampled_from(
    [
        *(
            "<tool_call>",
            "</tool_call>",
            "<tool",
            "_call>",
            "\n",
            " ",
            "{",
            "}",
            '"',
            "\\",
            "[",
            "]",
        ),
        *(
            '{"name": "f", "arguments": ',
            '{"name": "g", "arguments": {}}',
            '"a": 1',
            "text",
            call(),
        ),
    ]
)


@given(fragments=st.lists(FRAGMENTS, max_size=14), data=st.data())
@settings(max_examples=300)
def test_any_text_reads_the_same_however_it_is_cut(fragments: list[str], data: st.DataObject):
    text = "".join(fragments)
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=6).map(sorted))
    pieces = [text[a:b] for a, b in itertools.pairwise([0, *places, len(text)])]
    assert read(pieces) == read([text])


def tokenizer_with(*words: str):
    tokenizer = byte_level_tokenizer()
    tokenizer.add_tokens([*words])
    return tokenizer, TextTokenizer(tokenizer_files(tokenizer))


@pytest.mark.parametrize("words", [(), ("<tool_call>", "</tool_call>")], ids=["letters", "tokens"])
@pytest.mark.parametrize("reason", ["stop", "length"])
def test_however_ids_are_split_their_client_reads_the_same_calls(
    words: tuple[str, ...], reason: str
):
    tokenizer, text_tokenizer = tokenizer_with(*words)
    arguments = '{"q": "世 \\" </tool_call>"}'
    token_ids = tokenizer.encode(f"héllo {call(arguments)}\n{call()}").ids
    draw = random.Random(7)
    for number in range(120):
        size = number + 1 if number < 8 else None
        answer = Answer(text_tokenizer, (), 0, 1, CallReader(NAMES))
        left, pieces = list(token_ids), []
        while left:
            count = size or draw.randint(1, 8)
            part, left = left[:count], left[count:]
            pieces.append(answer.push(Step(tuple(part), None, None if left else reason)))
        calls: dict[int, str] = {}
        for delta in (delta for piece in pieces for delta in piece.calls):
            calls[delta.index] = calls.get(delta.index, "") + delta.arguments
        assert "".join(piece.text for piece in pieces) == "héllo"
        assert calls == {0: arguments, 1: '{"a": 1}'}
        assert json.loads(calls[0])["q"] == '世 " </tool_call>'
        assert pieces[-1].finish_reason == ("tool_calls" if reason == "stop" else "length")

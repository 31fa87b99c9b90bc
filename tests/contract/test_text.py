"""Text from ids: whatever the grouping, the pieces are the tokenizer's text, cut at a stop."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from deployments.openai.text import StopStrings
from deployments.openai.tokenizer import ChatTemplateError, TextTokenizer
from dflash.errors import CheckpointError
from tests.rigs.byte_tokenizer import (
    TEMPLATE,
    byte_level_tokenizer,
    fallback_tokenizer,
    tokenizer_files,
)

BYTES = byte_level_tokenizer()
FALLBACK = fallback_tokenizer()
TEXT_BYTES = TextTokenizer(tokenizer_files(BYTES))
TEXT_FALLBACK = TextTokenizer(tokenizer_files(FALLBACK))


def grouped(token_ids: list[int], cuts: random.Random) -> list[list[int]]:
    groups: list[list[int]] = []
    while token_ids:
        size = cuts.randint(1, 16)
        groups.append(token_ids[:size])
        token_ids = token_ids[size:]
    return groups


def pieces_of(tokenizer: TextTokenizer, groups: list[list[int]]) -> list[str]:
    stream = tokenizer.open_stream()
    return [*(stream.push(group) for group in groups), stream.flush()]


@pytest.mark.parametrize(
    ("tokenizer", "text_tokenizer"),
    [(BYTES, TEXT_BYTES), (FALLBACK, TEXT_FALLBACK)],
    ids=["byte-level", "byte-fallback"],
)
@given(data=st.data(), cuts=st.randoms(use_true_random=False))
def test_pieces_of_any_ids_in_any_groups_are_the_text_of_all_ids(
    tokenizer: Tokenizer, text_tokenizer: TextTokenizer, data: st.DataObject, cuts: random.Random
):
    token_ids = data.draw(st.lists(st.integers(0, tokenizer.get_vocab_size() - 1), max_size=40))

    pieces = pieces_of(text_tokenizer, grouped(token_ids, cuts))

    assert "".join(pieces) == tokenizer.decode(token_ids, skip_special_tokens=True)


@given(text=st.text(alphabet="aé世界😀 가나다.", max_size=30), cuts=st.randoms())
def test_no_piece_of_real_text_ends_inside_a_character(text: str, cuts: random.Random):
    token_ids = BYTES.encode(text).ids

    *pieces, last = pieces_of(TEXT_BYTES, grouped(token_ids, cuts))

    assert "".join(pieces) == text
    assert last == ""
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)


def test_text_that_later_ids_would_change_is_not_sent_early():
    ids = [FALLBACK.token_to_id(token) for token in ("a", "<0xE4>", "<0xB8>", "<0x96>", "<0xB8>")]
    ids.append(FALLBACK.token_to_id("b"))

    pieces = pieces_of(TEXT_FALLBACK, [[token_id] for token_id in ids])

    # Three of the bytes are a character until the fourth makes the whole run invalid.
    assert pieces == ["a", "", "", "", "", "\N{REPLACEMENT CHARACTER}" * 4 + "b", ""]


def test_a_special_token_does_not_end_a_run_of_bytes():
    ids = [FALLBACK.token_to_id(token) for token in ("<0x00>", "<s>", "<0x80>")]

    pieces = pieces_of(TEXT_FALLBACK, [[token_id] for token_id in ids])

    assert pieces == ["", "", "", FALLBACK.decode(ids, skip_special_tokens=True)]


def test_special_tokens_have_no_text_and_no_effect_on_spaces():
    ids = [FALLBACK.token_to_id(token) for token in ("▁hi", "<s>", "▁there", "</s>", "▁hi")]

    pieces = pieces_of(TEXT_FALLBACK, [[token_id] for token_id in ids])

    assert pieces == ["hi", "", " there", "", " hi", ""]


def cut_at_first_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    """The rule, read character by character: the first stop to be complete; ties to the longest."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))], True
    return text, False


@given(
    text=st.text(alphabet="ab", max_size=30),
    stops=st.lists(st.text(alphabet="ab", min_size=1, max_size=4), max_size=3),
    cuts=st.randoms(),
)
@example(text="abab", stops=["abaa", "ba"], cuts=random.Random(0))
def test_the_cut_at_a_stop_string_does_not_depend_on_grouping(
    text: str, stops: list[str], cuts: random.Random
):
    finder = StopStrings(stops)
    shown, is_stopped = "", False
    for group in grouped(list(text), cuts):
        piece, is_stopped = finder.push("".join(group))
        shown += piece
        if is_stopped:
            break
    shown += finder.flush()

    assert (shown, is_stopped) == cut_at_first_stop(text, stops)


def test_only_a_tail_that_begins_a_stop_string_is_held_back():
    finder = StopStrings(["</end>", "STOP"])

    pieces = [finder.push(text) for text in ("a <", "b> ST", "ART </", "en", "d")]

    assert pieces == [("a ", False), ("<b> ", False), ("START ", False), ("", False), ("", False)]
    assert finder.flush() == "</end"


def test_bytes_of_a_token_are_its_own_also_inside_a_character():
    ids = BYTES.encode("héllo 😀🦆").ids
    assert b"".join(map(TEXT_BYTES.bytes_of, ids)).decode() == "héllo 😀🦆"
    assert TEXT_BYTES.bytes_of(BYTES.token_to_id("<|im_end|>")) == b"<|im_end|>"
    assert TEXT_FALLBACK.bytes_of(FALLBACK.token_to_id("<0xE4>")) == b"\xe4"
    assert TEXT_FALLBACK.bytes_of(FALLBACK.token_to_id("▁hi")) == b" hi"


def test_the_prompt_of_a_chat_is_what_transformers_renders():
    from transformers import PreTrainedTokenizerFast

    messages = [{"role": "system", "content": "s\n"}, {"role": "user", "content": " hé 😀"}]
    reference = PreTrainedTokenizerFast(
        tokenizer_object=BYTES, chat_template=TEMPLATE, eos_token="<|im_end|>"
    )
    expected = reference.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]

    rendered = TEXT_BYTES.render_chat(messages)

    assert list(TEXT_BYTES.encode(rendered, add_special_tokens=False)) == expected


def with_template(template: str | None) -> TextTokenizer:
    files = {**tokenizer_files(BYTES), "tokenizer_config.json": b"{}"}
    if template is not None:
        files["chat_template.jinja"] = template.encode()
    return TextTokenizer(files)


def test_a_template_cannot_leave_its_sandbox():
    escape = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(ChatTemplateError, match="unsafe"):
        with_template(escape).render_chat([])


def test_a_template_can_refuse_messages_in_its_own_words():
    template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ChatTemplateError, match="roles must alternate"):
        with_template(template).render_chat([])


def test_a_model_without_a_template_points_to_completions():
    with pytest.raises(ChatTemplateError, match="/v1/completions"):
        with_template(None).render_chat([])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"no tokenizer\.json"),
        ({"tokenizer.json": b"{"}, "cannot be read"),
        ({"tokenizer.json": b"\xff"}, "cannot be read"),
        ({**tokenizer_files(BYTES), "tokenizer_config.json": b"no"}, "cannot be read"),
        ({**tokenizer_files(BYTES), "chat_template.jinja": b"{% if %}"}, "does not compile"),
    ],
)
def test_unusable_tokenizer_files_are_refused(files: dict[str, bytes], message: str):
    with pytest.raises(CheckpointError, match=message):
        TextTokenizer(files)

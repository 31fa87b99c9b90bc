"""However the ids of an answer are split into messages, its client reads the same."""

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from deployments.openai.generation import Answer, LogprobEntry, Piece
from deployments.openai.tokenizer import TextTokenizer
from deployments.wire import Step
from dflash.request import TokenLogprobs
from tests.rigs.byte_tokenizer import byte_level_tokenizer, fallback_tokenizer, tokenizer_files
from tests.rigs.http_server import FakeServer

MOST_IDS = 8
"""Ids of one message: the extra token, and as many draft tokens as the shipped drafter's block."""
BYTES = byte_level_tokenizer()
FALLBACK = fallback_tokenizer()
TOKENIZERS = {
    "byte-level": (BYTES, TextTokenizer(tokenizer_files(BYTES))),
    "byte-fallback": (FALLBACK, TextTokenizer(tokenizer_files(FALLBACK))),
}
Read = tuple[str, tuple[LogprobEntry, ...], str | None, int]


def splits(num_ids: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to send so many ids in messages of 1 to `MOST_IDS`."""
    if num_ids == 0:
        yield ()
    for first in range(1, min(num_ids, MOST_IDS) + 1):
        for rest in splits(num_ids - first):
            yield (first, *rest)


def cut(token_ids: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    ends = list(itertools.accumulate(sizes))
    return [list(token_ids[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


def steps_of(parts: list[list[int]], *, with_logprobs: bool) -> Iterator[Step]:
    position = 0
    for number, part in enumerate(parts, start=1):
        logprobs = tuple(
            TokenLogprobs(-float(position + index), ((token_id, -0.5),))
            for index, token_id in enumerate(part)
        )
        position += len(part)
        reason = "length" if number == len(parts) else None
        yield Step(tuple(part), logprobs if with_logprobs else None, reason)


def read(tokenizer: TextTokenizer, stops: Sequence[str], steps: Iterator[Step]) -> Read:
    """Return what a client gets of it: text, log-probabilities, reason, and the count."""
    answer = Answer(tokenizer, tuple(stops), 0, 1)
    pieces: list[Piece] = []
    for step in steps:
        pieces.append(answer.push(step))
        if pieces[-1].finish_reason is not None:
            break
    text = "".join(piece.text for piece in pieces)
    entries = tuple(entry for piece in pieces for entry in piece.logprobs)
    return text, entries, pieces[-1].finish_reason, answer.usage.completion_tokens


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("with_logprobs", [False, True])
def test_a_stop_at_each_place_is_the_same_in_every_split_of_the_ids(kind: str, with_logprobs: bool):
    tokenizer, text_tokenizer = TOKENIZERS[kind]
    text = "hi.é仍 stop" if kind == "byte-level" else "hi.世é stop"
    token_ids = tokenizer.encode(text).ids
    assert 7 <= len(token_ids) <= 12
    shown = text_tokenizer.decode(token_ids)
    places = [shown[start:end] for start in range(len(shown)) for end in (start + 1, start + 3)]

    for stop in (*places, "absent"):
        one_by_one = cut(token_ids, [1] * len(token_ids))
        expected = read(text_tokenizer, [stop], steps_of(one_by_one, with_logprobs=with_logprobs))
        end = shown.find(stop)
        assert expected[0] == (shown if end < 0 else shown[:end])
        assert expected[2] == ("length" if end < 0 else "stop")
        for sizes in splits(len(token_ids)):
            steps = steps_of(cut(token_ids, sizes), with_logprobs=with_logprobs)
            assert read(text_tokenizer, [stop], steps) == expected, (stop, sizes)


def test_every_split_is_tried():
    assert len(list(splits(5))) == 2**4
    assert (1,) * 9 in set(splits(9))
    assert (8, 1) in set(splits(9))
    assert (9,) not in set(splits(9))


def test_characters_of_many_ids_come_whole_through_http_however_they_are_sent(
    server: FakeServer, http: httpx.Client
):
    dice = random.Random(7)
    fields: dict[str, Any] = {"model": "fake", "prompt": "x", "stream": True, "max_tokens": 400}
    for _ in range(40):
        text = "".join(dice.choice("aé 世😀가나다ก์") for _ in range(dice.randint(1, 60)))
        server.loop.say(text)
        server.loop.tokens_per_step = dice.randint(1, 16)
        stop = dice.choice([None, text[len(text) // 2 :][:3]])

        frames = http.post("/v1/completions", json={**fields, "stop": stop}).text.split("\n\n")

        deltas = [json.loads(each.removeprefix("data: "))["choices"][0] for each in frames[:-2]]
        assert "".join(delta["text"] for delta in deltas) == text.partition(stop or "\n")[0]
        assert not any("\N{REPLACEMENT CHARACTER}" in delta["text"] for delta in deltas)

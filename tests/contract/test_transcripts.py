"""What OpenAI's client, unmodified, is answered to each kind of request, word for word."""

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.chat_completion import Choice as ChatCompletionChoice

from tests.rigs.http_server import FakeServer
from tests.rigs.transcripts import FILES, ask, ask_async, prepare, read

pytestmark = pytest.mark.usefixtures("one_step_a_message")
EACH = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


@EACH
def test_the_client_reads_what_the_transcript_says(
    server: FakeServer, openai_client: openai.OpenAI, file: Path
):
    transcript = read(file)
    prepare(server, transcript)
    assert ask(openai_client, transcript) == transcript


@EACH
def test_the_async_client_reads_the_same(server: FakeServer, file: Path):
    transcript = read(file)
    prepare(server, transcript)

    async def run() -> dict[str, Any]:
        async with openai.AsyncOpenAI(
            base_url=f"{server.base_url}/v1", api_key="any", max_retries=0
        ) as client:
            return await ask_async(client, transcript)

    assert asyncio.run(run()) == transcript


CHATS = [file for file in FILES if {"whole"} < read(file).keys() and file.stem.startswith("chat")]


@pytest.mark.parametrize("file", CHATS, ids=lambda file: file.stem)
def test_the_clients_own_reader_of_streams_comes_to_the_whole_answer(
    server: FakeServer, openai_client: openai.OpenAI, file: Path
):
    transcript = read(file)
    prepare(server, transcript)
    options = transcript.get("stream_options", openai.omit)

    with openai_client.chat.completions.stream(
        **transcript["request"], stream_options=options
    ) as stream:
        try:
            final = stream.until_done().get_final_completion()
        except openai.LengthFinishReasonError as cut:
            final = cut.completion

    for choice, expected in zip(final.choices, transcript["whole"]["choices"], strict=True):
        read_choice = ChatCompletionChoice.model_validate(expected)
        assert choice.finish_reason == read_choice.finish_reason
        assert (choice.message.content or None) == (read_choice.message.content or None)
        assert calls_of(choice) == calls_of(read_choice)
        assert entries_of(choice) == entries_of(read_choice)


def calls_of(choice: ChatCompletionChoice) -> list[tuple[str, str]]:
    calls = choice.message.tool_calls or []
    return [(call.function.name, call.function.arguments) for call in calls]


def entries_of(choice: ChatCompletionChoice) -> list[Any]:
    logprobs = choice.logprobs
    return [] if logprobs is None else [each.to_dict() for each in logprobs.content or []]


@EACH
def test_every_payload_is_of_the_clients_own_types_and_a_stream_adds_up_to_the_whole(file: Path):
    transcript = read(file)
    if "refused" in transcript:
        assert set(transcript["refused"]["error"]) == {"message", "type", "param", "code"}
        return
    whole, chunks = transcript["whole"], transcript["stream"]
    if transcript["endpoint"] == "chat":
        ChatCompletion.model_validate(whole)
        for chunk in chunks:
            ChatCompletionChunk.model_validate(chunk)
    else:
        Completion.model_validate(whole)

    for choice in whole["choices"]:
        parts = [each for chunk in chunks for each in chunk["choices"]]
        own = [part for part in parts if part["index"] == choice["index"]]
        assert "".join(map(text_of, own)) == text_of(choice)
        assert logprobs_of(own) == logprobs_of([choice])
        reasons = [part["finish_reason"] for part in own]
        assert reasons == [None] * (len(own) - 1) + [choice["finish_reason"]]


def text_of(choice: dict[str, Any]) -> str:
    message = choice.get("message") or choice.get("delta") or choice
    return message.get("content") or message.get("text") or ""


def logprobs_of(choices: list[dict[str, Any]]) -> list[Any]:
    """Return all entries; those of a completion as rows of its four lists."""
    entries: list[Any] = []
    for choice in choices:
        logprobs = choice["logprobs"] or {"content": []}
        if "content" in logprobs:
            entries += logprobs["content"]
        else:
            entries += zip(*logprobs.values(), strict=True)
    return entries

"""Requests of an OpenAI client and all that it was answered, kept as files.

`python -m tests.rigs.transcripts` asks each again and writes what comes: read the difference.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import openai

from tests.rigs.http_server import FakeServer, one_step_a_message, serving

FOLDER = Path(__file__).parents[1] / "contract" / "transcripts"
FILES = sorted(FOLDER.glob("*.json"))
Transcript = dict[str, Any]


def read(file: Path) -> Transcript:
    """Return a transcript.

    It has ``endpoint`` (``chat`` or ``completions``), ``says`` (each choice's text),
    ``tokens_per_step``, the ``request`` as the client's arguments, and the answers: ``whole`` and
    the frames of ``stream``.
    """
    return json.loads(file.read_text(encoding="utf-8"))


def prepare(server: FakeServer, transcript: Transcript) -> None:
    """Let the fake engine say what the transcript's says."""
    says: Sequence[str] = transcript["says"]
    server.loop.tokens_per_step = transcript["tokens_per_step"]
    server.loop.script = lambda request: tuple(
        server.loop.tokenizer.encode(says[request.choice % len(says)]).ids
    )


def ask(client: openai.OpenAI, transcript: Transcript) -> Transcript:
    """Return the transcript as it is answered now."""
    create = _endpoint(client, transcript).create
    try:
        whole = masked(create(**transcript["request"]).to_dict())
        with create(**transcript["request"], **_streamed(transcript)) as stream:
            chunks = [masked(chunk.to_dict()) for chunk in stream]
    except openai.APIStatusError as error:
        return _refused(transcript, error)
    return {**transcript, "whole": whole, "stream": by_choice(chunks)}


async def ask_async(client: openai.AsyncOpenAI, transcript: Transcript) -> Transcript:
    """Return what `ask` returns, asked through the asynchronous client."""
    create = _endpoint(client, transcript).create
    try:
        whole = masked((await create(**transcript["request"])).to_dict())
        stream = await create(**transcript["request"], **_streamed(transcript))
        chunks = [masked(chunk.to_dict()) async for chunk in stream]
    except openai.APIStatusError as error:
        return _refused(transcript, error)
    return {**transcript, "whole": whole, "stream": by_choice(chunks)}


def masked(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer without what no two answers share."""
    text = json.dumps({**payload, "created": 0})
    return json.loads(re.sub(r"(cmpl-|call_)[0-9a-f]{8,}", r"\1ID", text))


def by_choice(chunks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return frames with each choice's together: choices may interleave in any way."""
    last = len(chunks)
    return sorted(
        chunks, key=lambda chunk: chunk["choices"][0]["index"] if chunk["choices"] else last
    )


def _endpoint(client: Any, transcript: Transcript) -> Any:
    return client.chat.completions if transcript["endpoint"] == "chat" else client.completions


def _streamed(transcript: Transcript) -> dict[str, Any]:
    return {"stream": True, "stream_options": transcript.get("stream_options")}


def _refused(transcript: Transcript, error: openai.APIStatusError) -> Transcript:
    return {**transcript, "refused": {"status": error.status_code, "error": error.body}}


def main() -> None:
    """Ask each transcript's request and write the answers into its file."""
    with serving() as server, one_step_a_message():
        client = openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="any", max_retries=0)
        for file in FILES:
            transcript = read(file)
            prepare(server, transcript)
            text = json.dumps(ask(client, transcript), ensure_ascii=False, indent=1)
            file.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""A streaming client light enough to share two cores with the server it measures.

It reads bytes as they come, looks inside them only until the first text has arrived, and takes
the answer apart after its last byte. A general HTTP client spends more on a token than the server.
"""

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_FIRST_TEXT = re.compile(rb'"content":\s*"(?!")')
_READ_BYTES = 1 << 16


class AnswerError(Exception):
    """The server refused a request or cut its stream short. One text argument."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One finished stream.

    Attributes:
        num_tokens: Output tokens, as the server counted them.
        ttft_s: From sending the request to the first text in a chunk.
    """

    num_tokens: int
    ttft_s: float


@dataclass(frozen=True, slots=True)
class Visit:
    """A load served through HTTP.

    Attributes:
        seconds: From the first request to the last byte.
        answers: In the order of the requests.
        client_cpu_s: What this client itself used.
    """

    seconds: float
    answers: tuple[Answer, ...]
    client_cpu_s: float

    @property
    def tok_s(self) -> float:
        """Output throughput."""
        return sum(answer.num_tokens for answer in self.answers) / self.seconds


@dataclass(frozen=True, slots=True)
class ChatClient:
    """Asks one server for greedy chat answers of a fixed length.

    Attributes:
        port: On this machine.
        model: As the server names it.
    """

    port: int
    model: str

    def visit(self, texts: Sequence[str], concurrency: int, new_tokens: int) -> Visit:
        """Ask all questions, so many at a time, and return when the last answer is complete.

        Raises:
            AnswerError: A request was refused or a stream ended early.
        """
        requests = [self._request(text, new_tokens) for text in texts]
        cpu_before_s = time.process_time()
        started = time.perf_counter()
        answers = asyncio.run(self._ask_all(requests, concurrency))
        return Visit(
            seconds=time.perf_counter() - started,
            answers=tuple(answers),
            client_cpu_s=time.process_time() - cpu_before_s,
        )

    def _request(self, text: str, new_tokens: int) -> bytes:
        body = json.dumps(
            {
                "model": self.model,
                "messages": [{"role": "user", "content": text}],
                "max_tokens": new_tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        ).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\n"
            f"Host: 127.0.0.1:{self.port}\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode() + body

    async def _ask_all(self, requests: Sequence[bytes], concurrency: int) -> list[Answer]:
        answers: dict[int, Answer] = {}
        waiting = iter(enumerate(requests))

        async def worker() -> None:
            for index, request in waiting:
                answers[index] = await self._ask(request)

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())
        return [answers[index] for index in range(len(requests))]

    async def _ask(self, request: bytes) -> Answer:
        started = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            received = bytearray()
            ttft_s: float | None = None
            while part := await reader.read(_READ_BYTES):
                received += part
                if ttft_s is None and _FIRST_TEXT.search(received):
                    ttft_s = time.perf_counter() - started
        finally:
            writer.close()
        num_tokens = num_tokens_of(bytes(received))
        if ttft_s is None:
            raise AnswerError(f"a stream of {num_tokens} tokens held no text")
        return Answer(num_tokens=num_tokens, ttft_s=ttft_s)


def num_tokens_of(response: bytes) -> int:
    """Return the output tokens that the last frame of a streamed response counts.

    Raises:
        AnswerError: It is no successful stream, or has no end.
    """
    head, _, body = response.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    if not re.match(rb"HTTP/1\.[01] 200 ", lines[0] + b" "):
        raise AnswerError(
            f"{lines[0].decode(errors='replace')}: {body[-300:].decode('utf-8', 'replace')}"
        )
    if any(line.lower() == b"transfer-encoding: chunked" for line in lines):
        body = _unchunked(body)
    frames = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
    if len(frames) < 2 or frames[-1].strip() != b"[DONE]":
        last = frames[-1] if frames else body
        raise AnswerError(
            f"the stream has no end; its last words: {last[-300:].decode('utf-8', 'replace')}"
        )
    usage: dict[str, Any] = json.loads(frames[-2])["usage"]
    return usage["completion_tokens"]


def _unchunked(body: bytes) -> bytes:
    """Return the body without the sizes between its parts."""
    parts: list[bytes] = []
    at = 0
    while at < len(body):
        line_end = body.index(b"\r\n", at)
        size = int(body[at:line_end].split(b";")[0], 16)
        parts.append(body[line_end + 2 : line_end + 2 + size])
        at = line_end + 2 + size + 2
    return b"".join(parts)

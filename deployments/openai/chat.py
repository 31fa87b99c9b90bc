"""`POST /v1/chat/completions`: its prompt, and how its answer is written."""

import math
from collections.abc import Sequence
from typing import Any

from deployments.openai.generation import LogprobEntry, Piece, Usage
from deployments.openai.schemas import ChatBody, Message
from deployments.openai.stream import DONE, encode_json, frame
from deployments.openai.tokenizer import TextTokenizer

# JSON has no infinity; the API writes an impossible token so.
_LEAST_LOGPROB = -9999.0


def num_logprobs_of(body: ChatBody) -> int | None:
    """Return how many alternatives the engine must report with each token."""
    return (body.top_logprobs or 0) if body.logprobs else None


def template_messages(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Return the messages as chat templates know them: `developer` is OpenAI's newer `system`."""
    return [
        {
            "role": "system" if message.role == "developer" else message.role,
            "content": message.content,
        }
        for message in messages
    ]


class ChatDialect:
    """Writes one chat answer."""

    def __init__(
        self, head: dict[str, Any], seed: int, tokenizer: TextTokenizer, *, include_usage: bool
    ) -> None:
        """Prepare the constant parts of every frame.

        Args:
            head: ``id``, ``created`` and ``model``, the same in all frames.
            seed: The request's seed, reported so that any answer can be repeated.
            tokenizer: Spells the tokens of log-probabilities.
            include_usage: Whether the last frame carries the counts.
        """
        self._head = head
        self._seed = seed
        self._tokenizer = tokenizer
        self._include_usage = include_usage
        self._chunk_head = {**head, "object": "chat.completion.chunk"}
        self._usage_null: dict[str, Any] = {"usage": None} if include_usage else {}
        start = encode_json(self._chunk_head)[:-1]
        end = ',"usage":null}\n\n' if include_usage else "}\n\n"
        self._before_text = f'data: {start},"choices":[{{"index":0,"delta":{{"content":'
        self._after_text = f'}},"logprobs":null,"finish_reason":null}}]{end}'

    def opening(self) -> str:
        """Return the frame with the role."""
        return self._chunk({"role": "assistant", "content": ""}, None, None)

    def delta(self, piece: Piece) -> str:
        """Return the frame of a piece with text."""
        if not piece.logprobs:
            return self._before_text + encode_json(piece.text) + self._after_text
        return self._chunk({"content": piece.text}, self._logprobs(piece.logprobs), None)

    def closing(self, piece: Piece, usage: Usage) -> str:
        """Return the last text, the finish reason and the counts."""
        frames = self.delta(piece) if piece.text else ""
        logprobs = self._logprobs(piece.logprobs) if not piece.text and piece.logprobs else None
        frames += self._chunk({}, logprobs, piece.finish_reason, seed=self._seed)
        if self._include_usage:
            frames += frame(
                {**self._chunk_head, "choices": [], "usage": usage.as_body(), "seed": self._seed}
            )
        return frames + DONE

    def whole(self, pieces: list[Piece], usage: Usage) -> dict[str, Any]:
        """Return the body of an answer that is not streamed."""
        entries = [entry for piece in pieces for entry in piece.logprobs]
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": "".join(piece.text for piece in pieces),
                    },
                    "logprobs": self._logprobs(entries) if entries else None,
                    "finish_reason": pieces[-1].finish_reason,
                }
            ],
            "usage": usage.as_body(),
            "seed": self._seed,
        }

    def _chunk(
        self,
        delta: dict[str, Any],
        logprobs: dict[str, Any] | None,
        finish_reason: str | None,
        **extra: object,
    ) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return frame({**self._chunk_head, "choices": [choice], **self._usage_null, **extra})

    def _logprobs(self, entries: Sequence[LogprobEntry]) -> dict[str, Any]:
        return {
            "content": [
                {
                    **self._token(entry.token_id, entry.logprobs.logprob),
                    "top_logprobs": [self._token(*pair) for pair in entry.logprobs.top],
                }
                for entry in entries
            ],
            "refusal": None,
        }

    def _token(self, token_id: int, logprob: float) -> dict[str, Any]:
        spelling = self._tokenizer.bytes_of(token_id)
        return {
            "token": spelling.decode(errors="replace"),
            "logprob": finite_logprob(logprob),
            "bytes": list(spelling),
        }


def finite_logprob(logprob: float) -> float:
    """Return a log-probability that JSON can carry."""
    return logprob if math.isfinite(logprob) else _LEAST_LOGPROB

"""`POST /v1/chat/completions`: its prompt, and how its answer is written."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from deployments.openai.generation import LogprobEntry, Piece, Usage
from deployments.openai.metrics_block import with_metrics
from deployments.openai.schemas import ChatBody
from deployments.openai.stream import encode_json, frame, last_frames
from deployments.openai.tokenizer import TextTokenizer
from deployments.openai.tool_calls import CallDelta

# JSON has no infinity; the API writes an impossible token so.
_LEAST_LOGPROB = -9999.0


def num_logprobs_of(body: ChatBody) -> int | None:
    """Return how many alternatives the engine must report with each token."""
    return (body.top_logprobs or 0) if body.logprobs else None


class ChatDialect:
    """Writes one chat answer."""

    def __init__(
        self,
        head: dict[str, Any],
        seed: int,
        tokenizer: TextTokenizer,
        *,
        num_choices: int,
        include_usage: bool,
    ) -> None:
        """Prepare the constant parts of every frame.

        Args:
            head: ``id``, ``created`` and ``model``, the same in all frames.
            seed: The request's seed, reported so that any answer can be repeated.
            tokenizer: Spells the tokens of log-probabilities.
            num_choices: How many choices the answer has.
            include_usage: Whether the last frame carries the counts.
        """
        self._head = head
        self._seed = seed
        self._tokenizer = tokenizer
        self._num_choices = num_choices
        self._include_usage = include_usage
        self._chunk_head = {**head, "object": "chat.completion.chunk"}
        self._usage_null: dict[str, Any] = {"usage": None} if include_usage else {}
        self._before_index = f'data: {encode_json(self._chunk_head)[:-1]},"choices":[{{"index":'
        self._after_text = '},"logprobs":null,"finish_reason":null}]'
        self._end = ',"usage":null}\n\n' if include_usage else "}\n\n"

    def opening(self) -> str:
        """Return a frame with the role for each choice."""
        delta = {"role": "assistant", "content": ""}
        return "".join(self._chunk(_choice(index, delta)) for index in range(self._num_choices))

    def delta(self, index: int, piece: Piece, usage: Usage | None = None) -> str:
        """Return the frames of a piece with text or calls."""
        if piece.calls:
            return self._with_calls(index, piece, usage)
        if not piece.logprobs and usage is None:
            text = f'{index},"delta":{{"content":{encode_json(piece.text)}'
            return self._before_index + text + self._after_text + self._end
        logprobs = self._logprobs(piece.logprobs) if piece.logprobs else None
        return self._chunk(_choice(index, {"content": piece.text}, logprobs), usage)

    def ending(self, index: int, piece: Piece, usage: Usage | None = None) -> str:
        """Return a choice's last text, and its finish reason."""
        is_shown = bool(piece.text or piece.calls)
        frames = self.delta(index, piece, usage) if is_shown else ""
        logprobs = self._logprobs(piece.logprobs) if not is_shown and piece.logprobs else None
        last = _choice(index, {}, logprobs, piece.finish_reason)
        return frames + self._chunk(last, usage, seed=self._seed)

    def closing(self, usage: Usage, metrics: Mapping[str, Any] | None = None) -> str:
        """Return the counts and the metrics where they were asked for, and the end."""
        return last_frames(
            self._chunk_head, self._seed, usage, metrics, include_usage=self._include_usage
        )

    def whole(
        self,
        choices: Sequence[Sequence[Piece]],
        usage: Usage,
        metrics: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the body of an answer that is not streamed."""
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [self._whole_choice(*each) for each in enumerate(choices)],
            "usage": usage.as_body(),
            "seed": self._seed,
            **with_metrics(metrics),
        }

    def _whole_choice(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        entries = [entry for piece in pieces for entry in piece.logprobs]
        return {
            "index": index,
            "message": _message(pieces),
            "logprobs": self._logprobs(entries) if entries else None,
            "finish_reason": pieces[-1].finish_reason,
        }

    def _with_calls(self, index: int, piece: Piece, usage: Usage | None) -> str:
        """Return a frame of the text, where there is some, and one of the calls."""
        text = self.delta(index, Piece(piece.text), usage) if piece.text else ""
        logprobs = self._logprobs(piece.logprobs) if piece.logprobs else None
        calls = {"tool_calls": [_call_delta(call) for call in piece.calls]}
        return text + self._chunk(_choice(index, calls, logprobs), usage)

    def _chunk(self, choice: dict[str, Any], usage: Usage | None = None, **extra: object) -> str:
        counts = {"usage": usage.as_body()} if usage else self._usage_null
        return frame({**self._chunk_head, "choices": [choice], **counts, **extra})

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


def _message(pieces: Sequence[Piece]) -> dict[str, Any]:
    text = "".join(piece.text for piece in pieces)
    calls = _whole_calls([call for piece in pieces for call in piece.calls])
    if not calls:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": text or None, "tool_calls": calls}


def _whole_calls(deltas: Sequence[CallDelta]) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    for delta in deltas:
        if delta.name is not None:
            function = {"name": delta.name, "arguments": ""}
            calls.append({"id": delta.call_id, "type": "function", "function": function})
        calls[-1]["function"]["arguments"] += delta.arguments
    return calls


def _call_delta(call: CallDelta) -> dict[str, Any]:
    if call.name is None:
        return {"index": call.index, "function": {"arguments": call.arguments}}
    function = {"name": call.name, "arguments": call.arguments}
    return {"index": call.index, "id": call.call_id, "type": "function", "function": function}


def _choice(
    index: int,
    delta: dict[str, Any],
    logprobs: dict[str, Any] | None = None,
    finish_reason: str | None = None,
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}


def finite_logprob(logprob: float) -> float:
    """Return a log-probability that JSON can carry."""
    return logprob if math.isfinite(logprob) else _LEAST_LOGPROB

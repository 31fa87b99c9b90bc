"""`POST /v1/completions`: its prompt, and how its answer is written."""

from collections.abc import Sequence
from typing import Any, cast

from deployments.openai import errors
from deployments.openai.chat import finite_logprob
from deployments.openai.errors import RefusedError
from deployments.openai.generation import LogprobEntry, Piece, Usage
from deployments.openai.schemas import whole_text
from deployments.openai.stream import DONE, encode_json, frame
from deployments.openai.tokenizer import TextTokenizer


def single_prompt(prompt: str | list[Any]) -> str | tuple[int, ...]:
    """Return the one prompt of a request: a text, or token ids.

    The API also takes a list that holds one of either.

    Raises:
        RefusedError: It is empty, of mixed types, or several prompts.
    """
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        if len(prompt) > 1:
            raise RefusedError(
                errors.unsupported_parameter("prompt", "one prompt a request; send them singly")
            )
        prompt = cast("str | list[Any]", prompt[0])
    if not prompt:
        raise RefusedError(
            errors.invalid_parameter("prompt", "prompt is empty; send at least one token")
        )
    if isinstance(prompt, str):
        return _whole_prompt(prompt)
    for item in prompt:
        if type(item) is not int:
            raise RefusedError(
                errors.invalid_parameter(
                    "prompt", f"prompt must be a text or token ids, got {_kind_of(item)} inside"
                )
            )
    return tuple(prompt)


def _kind_of(item: object) -> str:
    return "null" if item is None else type(item).__name__


def _whole_prompt(text: str) -> str:
    try:
        return whole_text(text)
    except ValueError as error:
        raise RefusedError(errors.invalid_parameter("prompt", f"prompt: {error}")) from error


class CompletionDialect:
    """Writes one text completion."""

    def __init__(
        self,
        head: dict[str, Any],
        seed: int,
        tokenizer: TextTokenizer,
        *,
        echo: str,
        include_usage: bool,
    ) -> None:
        """Prepare the constant parts of every frame.

        Args:
            head: ``id``, ``created`` and ``model``, the same in all frames.
            seed: The request's seed, reported so that any answer can be repeated.
            tokenizer: Spells the tokens of log-probabilities.
            echo: The prompt's text where it was asked for, else nothing.
            include_usage: Whether the last frame carries the counts.
        """
        self._head = {**head, "object": "text_completion"}
        self._seed = seed
        self._tokenizer = tokenizer
        self._echo = echo
        self._include_usage = include_usage
        self._usage_null: dict[str, Any] = {"usage": None} if include_usage else {}
        start = encode_json(self._head)[:-1]
        end = ',"usage":null}\n\n' if include_usage else "}\n\n"
        self._before_text = f'data: {start},"choices":[{{"index":0,"text":'
        self._after_text = f',"logprobs":null,"finish_reason":null}}]{end}'

    def opening(self) -> str:
        """Return the prompt's text where it was asked for."""
        return self.delta(Piece(self._echo)) if self._echo else ""

    def delta(self, piece: Piece) -> str:
        """Return the frame of a piece with text."""
        if not piece.logprobs:
            return self._before_text + encode_json(piece.text) + self._after_text
        return frame({**self._head, "choices": [self._choice(piece)], **self._usage_null})

    def closing(self, piece: Piece, usage: Usage) -> str:
        """Return the last text with the finish reason, and the counts."""
        last = {**self._head, "choices": [self._choice(piece)], **self._usage_null}
        frames = frame({**last, "seed": self._seed})
        if self._include_usage:
            frames += frame(
                {**self._head, "choices": [], "usage": usage.as_body(), "seed": self._seed}
            )
        return frames + DONE

    def whole(self, pieces: list[Piece], usage: Usage) -> dict[str, Any]:
        """Return the body of an answer that is not streamed."""
        all_of_it = Piece(
            self._echo + "".join(piece.text for piece in pieces),
            tuple(entry for piece in pieces for entry in piece.logprobs),
            pieces[-1].finish_reason,
        )
        return {
            **self._head,
            "choices": [self._choice(all_of_it)],
            "usage": usage.as_body(),
            "seed": self._seed,
        }

    def _choice(self, piece: Piece) -> dict[str, Any]:
        return {
            "index": 0,
            "text": piece.text,
            "logprobs": self._logprobs(piece.logprobs) if piece.logprobs else None,
            "finish_reason": piece.finish_reason,
        }

    def _logprobs(self, entries: Sequence[LogprobEntry]) -> dict[str, Any]:
        return {
            "tokens": [self._spelling(entry.token_id) for entry in entries],
            "token_logprobs": [finite_logprob(entry.logprobs.logprob) for entry in entries],
            "top_logprobs": [
                {
                    self._spelling(token_id): finite_logprob(logprob)
                    for token_id, logprob in entry.logprobs.top
                }
                for entry in entries
            ],
            "text_offset": [entry.offset for entry in entries],
        }

    def _spelling(self, token_id: int) -> str:
        return self._tokenizer.bytes_of(token_id).decode(errors="replace")

"""`POST /v1/completions`: its prompt, and how its answer is written."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from deployments.openai import errors
from deployments.openai.chat import finite_logprob
from deployments.openai.errors import RefusedError
from deployments.openai.fields import whole_text
from deployments.openai.generation import LogprobEntry, Piece, Usage
from deployments.openai.metrics_block import with_metrics
from deployments.openai.schemas import MAX_CHOICES_IN_ALL
from deployments.openai.stream import encode_json, frame, last_frames
from deployments.openai.tokenizer import TextTokenizer


def prompts_of(prompt: str | list[Any], n: int) -> list[str | tuple[int, ...]]:
    """Return the prompts of a request: each a text, or token ids.

    The API takes one of either, and a list of them.

    Args:
        prompt: As the body has it.
        n: How many choices each is to have.

    Raises:
        RefusedError: One is empty or of mixed types, or there are too many.
    """
    if not (isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list)):
        return [_one_prompt(prompt)]
    num_choices = len(prompt) * n
    if num_choices > MAX_CHOICES_IN_ALL:
        raise RefusedError(
            errors.invalid_parameter(
                "prompt",
                f"{len(prompt)} prompts with n {n} are {num_choices} choices; a request can have "
                f"{MAX_CHOICES_IN_ALL} at most",
            )
        )
    return [_one_prompt(each) for each in prompt]


def _one_prompt(prompt: Any) -> str | tuple[int, ...]:
    if isinstance(prompt, str) and prompt:
        return _whole_prompt(prompt)
    if not isinstance(prompt, str | list):
        raise RefusedError(
            errors.invalid_parameter(
                "prompt", f"prompt must be texts or lists of ids, got {_kind_of(prompt)} inside"
            )
        )
    if not prompt:
        raise RefusedError(
            errors.invalid_parameter("prompt", "prompt is empty; send at least one token")
        )
    token_ids = cast("list[Any]", prompt)
    for item in token_ids:
        if type(item) is not int:
            raise RefusedError(
                errors.invalid_parameter(
                    "prompt", f"prompt must be a text or token ids, got {_kind_of(item)} inside"
                )
            )
    return tuple(token_ids)


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
        echoes: Sequence[str],
        include_usage: bool,
    ) -> None:
        """Prepare the constant parts of every frame.

        Args:
            head: ``id``, ``created`` and ``model``, the same in all frames.
            seed: The request's seed, reported so that any answer can be repeated.
            tokenizer: Spells the tokens of log-probabilities.
            echoes: Each choice's prompt as text, empty where it was not asked for.
            include_usage: Whether the last frame carries the counts.
        """
        self._head = {**head, "object": "text_completion"}
        self._seed = seed
        self._tokenizer = tokenizer
        self._echoes = echoes
        self._include_usage = include_usage
        self._usage_null: dict[str, Any] = {"usage": None} if include_usage else {}
        self._before_index = f'data: {encode_json(self._head)[:-1]},"choices":[{{"index":'
        self._after_text = ',"logprobs":null,"finish_reason":null}]'
        self._end = ',"usage":null}\n\n' if include_usage else "}\n\n"

    def opening(self) -> str:
        """Return the prompts' texts where they were asked for."""
        echoes = (self.delta(index, Piece(echo)) for index, echo in enumerate(self._echoes) if echo)
        return "".join(echoes)

    def delta(self, index: int, piece: Piece, usage: Usage | None = None) -> str:
        """Return the frame of a piece with text."""
        if not piece.logprobs and usage is None:
            text = f'{index},"text":{encode_json(piece.text)}'
            return self._before_index + text + self._after_text + self._end
        return self._chunk(index, piece, usage)

    def ending(self, index: int, piece: Piece, usage: Usage | None = None) -> str:
        """Return a choice's last text with the finish reason."""
        return self._chunk(index, piece, usage, seed=self._seed)

    def closing(self, usage: Usage, metrics: Mapping[str, Any] | None = None) -> str:
        """Return the counts and the metrics where they were asked for, and the end."""
        return last_frames(
            self._head, self._seed, usage, metrics, include_usage=self._include_usage
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
            "choices": [self._whole_choice(*each) for each in enumerate(choices)],
            "usage": usage.as_body(),
            "seed": self._seed,
            **with_metrics(metrics),
        }

    def _whole_choice(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        all_of_it = Piece(
            self._echoes[index] + "".join(piece.text for piece in pieces),
            tuple(entry for piece in pieces for entry in piece.logprobs),
            pieces[-1].finish_reason,
        )
        return self._choice(index, all_of_it)

    def _chunk(self, index: int, piece: Piece, usage: Usage | None = None, **extra: object) -> str:
        counts = {"usage": usage.as_body()} if usage else self._usage_null
        return frame({**self._head, "choices": [self._choice(index, piece)], **counts, **extra})

    def _choice(self, index: int, piece: Piece) -> dict[str, Any]:
        return {
            "index": index,
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

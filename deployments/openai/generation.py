"""From a body to an engine request, and from the engine's steps to pieces of text."""

import secrets
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from deployments.openai import errors
from deployments.openai.constraint import grammar_of
from deployments.openai.errors import ApiError, RefusedError
from deployments.openai.schemas import GenerationBody
from deployments.openai.text import StopStrings
from deployments.openai.tokenizer import TextTokenizer
from deployments.openai.tool_calls import CallDelta, CallReader
from deployments.wire import ModelCard, Step
from dflash.errors import RequestError
from dflash.request import GenerateRequest, SamplingParams, TokenLogprobs


@dataclass(frozen=True, slots=True)
class LogprobEntry:
    """Log-probabilities of one emitted token, with where its text lies.

    Attributes:
        token_id: The token.
        offset: Characters of the answer before the token's own.
        logprobs: Its numbers.
    """

    token_id: int
    offset: int
    logprobs: TokenLogprobs


@dataclass(frozen=True, slots=True)
class Piece:
    """What one step added to the answer. Only the last piece has a finish reason."""

    text: str
    logprobs: tuple[LogprobEntry, ...] = ()
    finish_reason: str | None = None
    calls: tuple[CallDelta, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    def as_body(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


class Answer:
    """One choice as it grows: ids in, pieces of text out, ended by the engine or a stop string.

    The same object serves streams and whole answers, so their texts cannot differ.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        stops: tuple[str, ...],
        min_tokens: int,
        num_prompt: int,
        calls: CallReader | None = None,
    ) -> None:
        """Begin with nothing.

        Args:
            tokenizer: Makes text of ids.
            stops: Strings that end it.
            min_tokens: Before so many tokens none of them does.
            num_prompt: Tokens of its prompt.
            calls: Finds calls of tools in the text; None where there are none to call.
        """
        self._calls = calls
        self._text = tokenizer.open_stream()
        self._stops = StopStrings(stops)
        self._has_stops = bool(stops)
        self._min_tokens = min_tokens
        self._num_prompt = num_prompt
        self._num_tokens = 0
        self._num_cached = 0
        self._num_characters = 0
        self._num_shown = 0
        self._held_logprobs: list[LogprobEntry] = []

    @property
    def usage(self) -> Usage:
        """The counts so far; tokens after a stop string are not in them."""
        return Usage(self._num_prompt, self._num_tokens, self._num_cached)

    def push(self, step: Step) -> Piece:
        """Take one step and return what may now be shown.

        The piece has a finish reason where the engine, or a stop string, ended the answer.
        """
        # A resumed request finds emitted tokens cached too; the client's prompt is what counts.
        num_cached = min(step.num_cached_tokens, self._num_prompt)
        self._num_cached = max(self._num_cached, num_cached)
        text, is_stopped = self._take_tokens(step)
        if step.finish_reason is not None and not is_stopped:
            last, is_stopped = self._take_text(self._text.flush())
            text += last if is_stopped else last + self._stops.flush()
        self._num_shown += len(text)
        reason = "stop" if is_stopped else step.finish_reason
        logprobs = self._take_logprobs(is_end=reason is not None, is_cut=is_stopped)
        if self._calls is None:
            return Piece(text, logprobs, reason)
        return _with_calls(self._calls, Piece(text, logprobs, reason))

    def _take_tokens(self, step: Step) -> tuple[str, bool]:
        if not self._has_stops and step.logprobs is None:
            self._num_tokens += len(step.token_ids)
            return self._text.push(step.token_ids), False
        text = ""
        for index, token_id in enumerate(step.token_ids):
            self._num_tokens += 1
            if step.logprobs is not None:
                self._held_logprobs.append(
                    LogprobEntry(token_id, self._num_characters, step.logprobs[index])
                )
            shown, is_stopped = self._take_text(self._text.push((token_id,)))
            text += shown
            if is_stopped:
                return text, True
        return text, False

    def _take_text(self, text: str) -> tuple[str, bool]:
        self._num_characters += len(text)
        # `min_tokens` holds for every way to stop: text before it cannot begin a stop string.
        if self._num_tokens < self._min_tokens:
            return text, False
        return self._stops.push(text)

    def _take_logprobs(self, *, is_end: bool, is_cut: bool) -> tuple[LogprobEntry, ...]:
        """Return the entries whose text is shown: they travel with their text."""
        held = self._held_logprobs
        if not held:
            return ()
        if is_end and not is_cut:
            ready = len(held)
        else:
            ready = sum(entry.offset < self._num_shown for entry in held)
        self._held_logprobs = held[ready:]
        return tuple(held[:ready])


def _with_calls(reader: CallReader, piece: Piece) -> Piece:
    """Return a piece with the calls in its text; a call that was the last one ends the answer."""
    found = reader.push(piece.text, is_end=piece.finish_reason is not None)
    reason = piece.finish_reason
    if reader.is_full or (reason == "stop" and reader.num_calls):
        reason = "tool_calls"
    return Piece(found.text, piece.logprobs, reason, found.calls)


def new_request_id() -> str:
    """Return an id that no client chose."""
    return uuid.uuid4().hex


def seed_of(body: GenerationBody) -> int:
    """Return a request's seed: its own, or a new one, small enough for any JSON reader."""
    return secrets.randbits(53) if body.seed is None else body.seed


def generate_request(
    body: GenerationBody,
    prompt_token_ids: tuple[int, ...],
    num_logprobs: int | None,
    card: ModelCard,
    prompt_param: str,
    seed: int,
) -> GenerateRequest:
    """Return the engine's request.

    Args:
        body: The client's fields.
        prompt_token_ids: The prompt.
        num_logprobs: As `SamplingParams` has it.
        card: The model's limits.
        prompt_param: What the client calls the prompt (``prompt`` or ``messages``).
        seed: The client's, or one drawn for it.

    Raises:
        RefusedError: A field is out of range, or the request does not fit the context.
    """
    try:
        return GenerateRequest(
            request_id=new_request_id(),
            prompt_token_ids=prompt_token_ids,
            max_tokens=_max_tokens(body, len(prompt_token_ids), card.max_model_len, prompt_param),
            sampling=_sampling_params(body, num_logprobs, card.vocab_size),
            seed=seed,
            max_draft_length=body.speculation and body.speculation.max_draft_length,
            grammar=grammar_of(body),
        )
    except RequestError as error:
        raise RefusedError(_as_api_error(error, prompt_param)) from error


def _as_api_error(error: RequestError, prompt_param: str) -> ApiError:
    field = error.field or prompt_param
    return errors.invalid_parameter(prompt_param if field == "prompt" else field, str(error))


def _max_tokens(body: GenerationBody, num_prompt: int, limit: int, prompt_param: str) -> int:
    """Return how many tokens to emit at most: what was asked, or what the context leaves."""
    if num_prompt >= limit:
        raise RefusedError(errors.prompt_too_long(num_prompt, limit, prompt_param))
    # Two names of one field: the second is OpenAI's newer one.
    given = {
        name: value
        for name in ("max_tokens", "max_completion_tokens")
        if (value := getattr(body, name)) is not None
    }
    for name, value in given.items():
        if value < 1:
            raise RefusedError(
                errors.invalid_parameter(name, f"{name} must be 1 or more, got {value}")
            )
        if num_prompt + value > limit:
            raise RefusedError(errors.context_too_long(num_prompt, value, limit, name))
    if len(set(given.values())) > 1:
        both = " and ".join(f"{name} is {value}" for name, value in given.items())
        raise RefusedError(errors.invalid_parameter("max_tokens", f"{both}; send one"))
    return next(iter(given.values()), limit - num_prompt)


def _sampling_params(
    body: GenerationBody, num_logprobs: int | None, vocab_size: int
) -> SamplingParams:
    """Return the sampling of a request; a field left out, or null, takes the engine's default."""
    bias = tuple((body.logit_bias or {}).items())
    stop_token_ids = tuple(body.stop_token_ids or ())
    refuse_foreign_ids("logit_bias", (token_id for token_id, _ in bias), vocab_size)
    refuse_foreign_ids("stop_token_ids", stop_token_ids, vocab_size)
    given = {
        name: value
        for name in (
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
            "min_tokens",
            "ignore_eos",
        )
        if (value := getattr(body, name)) is not None
    }
    # Other engines write "all" as -1.
    if given.get("top_k") == -1:
        given["top_k"] = 0
    return SamplingParams(
        logit_bias=bias, stop_token_ids=stop_token_ids, num_logprobs=num_logprobs, **given
    )


def refuse_foreign_ids(param: str, token_ids: Iterable[int], vocab_size: int) -> None:
    """Refuse ids that the model has not.

    Raises:
        RefusedError: One of them is negative or past the vocabulary.
    """
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise RefusedError(
                errors.invalid_parameter(
                    param, f"{param}: token ids are 0 to {vocab_size - 1}, got {token_id}"
                )
            )

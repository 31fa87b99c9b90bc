"""A generation request and the messages that answer it: plain values that cross threads."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from dflash.errors import RequestError
from dflash.grammar.text import Grammar
from dflash.stats import WhyPlain

MAX_SEED = 2**64 - 1
MAX_CHOICE = 2**32 - 1
MAX_TOP_LOGPROBS = 20
MAX_TOP_K = 1_000_000
MAX_MIN_TOKENS = 1_000_000
MAX_STOP_TOKEN_IDS = 64
MAX_LOGIT_BIAS_ENTRIES = 1024


# Attribute, the API's name of it, least and largest value. NaN fails every comparison.
_RANGES = (
    ("temperature", "temperature", 0.0, 100.0),
    ("top_k", "top_k", 0, MAX_TOP_K),
    ("top_p", "top_p", 0.0, 1.0),
    ("min_p", "min_p", 0.0, 1.0),
    ("presence_penalty", "presence_penalty", -2.0, 2.0),
    ("frequency_penalty", "frequency_penalty", -2.0, 2.0),
    ("repetition_penalty", "repetition_penalty", 0.01, 10.0),
    ("min_tokens", "min_tokens", 0, MAX_MIN_TOKENS),
    ("num_logprobs", "top_logprobs", 0, MAX_TOP_LOGPROBS),
)


def _is_between(low: float, value: object, high: float) -> bool:
    return isinstance(value, int | float) and low <= value <= high


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen from the target's logits.

    Attributes:
        temperature: 0 means greedy; the largest processed logit wins, ties go to the lower id.
        top_k: Keep the k largest logits; 0 keeps all.
        top_p: Keep the smallest set whose probability reaches this, in (0, 1].
        min_p: Drop ids under this share of the largest probability, in [0, 1].
        presence_penalty: Subtracted once from ids already emitted, in [-2, 2].
        frequency_penalty: Subtracted per earlier emission, in [-2, 2].
        repetition_penalty: Divides (multiplies) positive (negative) logits of ids in prompt or
            output, in [0.01, 10]; 1 is off.
        logit_bias: Pairs of (token id, bias) added to the logits.
        stop_token_ids: Ids that end the request, beside the model's end-of-sequence ids.
        min_tokens: End-of-sequence and stop ids cannot be chosen before this many tokens.
        ignore_eos: Treat the model's end-of-sequence ids as ordinary tokens.
        num_logprobs: None for no log-probabilities; k for the chosen token's and the k largest.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    num_logprobs: int | None = None

    def __post_init__(self) -> None:
        for name, field_name, low, high in _RANGES:
            value = getattr(self, name)
            may_be_absent = name == "num_logprobs"
            if not (may_be_absent and value is None) and not _is_between(low, value, high):
                raise RequestError(
                    f"{field_name} must be in [{low:g}, {high:g}], got {value}", field_name
                )
        if self.top_p == 0.0:
            raise RequestError("top_p must be over 0, got 0; 1 is off", "top_p")
        for name, most in (
            ("stop_token_ids", MAX_STOP_TOKEN_IDS),
            ("logit_bias", MAX_LOGIT_BIAS_ENTRIES),
        ):
            count = len(getattr(self, name))
            if count > most:
                raise RequestError(f"{name} can hold {most} ids, got {count}", name)
        self._check_token_ids()

    def reads_output(self, num_output_tokens: int) -> bool:
        """Whether the choice after so many tokens depends on which, or how many, were emitted."""
        return (
            num_output_tokens < self.min_tokens
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or self.repetition_penalty != 1.0
        )

    def _check_token_ids(self) -> None:
        if not all(isinstance(token_id, int) for token_id in self.stop_token_ids):
            raise RequestError("stop_token_ids must be whole numbers", "stop_token_ids")
        for token_id, bias in self.logit_bias:
            if not isinstance(token_id, int) or not math.isfinite(bias):
                raise RequestError(
                    f"logit_bias maps token ids to finite numbers, got {token_id}: {bias}",
                    "logit_bias",
                )


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One request, complete and checked against everything but the model.

    Attributes:
        request_id: Unique among live requests; made by us, never by a client.
        prompt_token_ids: At least one id.
        max_tokens: Most tokens to emit, at least 1.
        sampling: How each token is chosen.
        seed: 64-bit seed of the request's noise, always set: where the client gave none the
            caller draws one (`new_seed`) and reports it, so any run can be repeated.
        choice: Index among the ``n`` choices of one HTTP request; part of the noise's key.
        max_draft_length: Most draft tokens verified for it in a step, whoever drafts; 0 lets nobody
            draft, None leaves it to the planner.
        grammar: What the output must match; None is anything.
        emitted_token_ids: The beginning of its output where another engine emitted that: it goes
            on behind, and ``max_tokens`` counts these too.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int = 0
    choice: int = 0
    max_draft_length: int | None = None
    grammar: Grammar | None = None
    emitted_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.prompt_token_ids:
            raise RequestError("prompt is empty; give at least one token", "prompt")
        if not isinstance(self.max_tokens, int) or self.max_tokens < 1:
            raise RequestError(
                f"max_tokens must be a whole number from 1, got {self.max_tokens}", "max_tokens"
            )
        for name, value, most in (("seed", self.seed, MAX_SEED), ("n", self.choice, MAX_CHOICE)):
            if not isinstance(value, int) or not 0 <= value <= most:
                raise RequestError(f"{name} must be in [0, {most}], got {value}", name)
        most = self.max_draft_length
        if most is not None and (not isinstance(most, int) or most < 0):
            raise RequestError(
                f"speculation.max_draft_length must be a whole number from 0, got {most}; "
                "0 decodes plainly",
                "speculation",
            )
        if len(self.emitted_token_ids) >= self.max_tokens:
            raise RequestError(
                f"max_tokens is {self.max_tokens} and {len(self.emitted_token_ids)} tokens were "
                "emitted before; nothing is left to generate",
                "max_tokens",
            )
        if self.grammar is not None:
            self._check_ends(self.grammar)

    @property
    def known_token_ids(self) -> tuple[int, ...]:
        """Return the ids it starts with: its prompt, and what was emitted of its output."""
        return (*self.prompt_token_ids, *self.emitted_token_ids)

    def _check_ends(self, grammar: Grammar) -> None:
        """Refuse what would go on where the grammar has come to its end."""
        for name in ("min_tokens", "ignore_eos"):
            if value := getattr(self.sampling, name):
                raise RequestError(
                    f"{name} is {value} and {grammar.field} says where the output ends; "
                    f"leave one of them out",
                    name,
                )


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities of one emitted token, from the row that chose it.

    Computed from the target's raw logits (before temperature and truncation, after nothing).

    Attributes:
        logprob: Of the emitted token.
        top: Pairs of (token id, logprob), largest first, ties to the lower id.
    """

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Speculation:
    """How one request was decoded; its ids do not depend on it.

    Attributes:
        num_steps: Steps in which it decoded.
        num_drafting: Of those, the ones in which draft tokens were verified, by drafter.
        num_drafted: Draft tokens verified for it.
        num_accepted: Of those, the ones emitted.
        num_plain: Decode steps without a draft token, by reason.
    """

    num_steps: int
    num_drafting: Mapping[str, int]
    num_drafted: int
    num_accepted: int
    num_plain: Mapping[WhyPlain, int]


class Decoded(NamedTuple):
    """How one request decoded in one step; a named tuple, because one crosses per step.

    Attributes:
        drafter: Who was asked to draft for it; ``plain`` where nobody was.
        num_drafted: Draft tokens verified.
        num_accepted: Of those, the ones emitted.
        why_plain: Why none was verified; None where some were.
    """

    drafter: str
    num_drafted: int = 0
    num_accepted: int = 0
    why_plain: str | None = None


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """What one request gained in one step: the only message from engine to edge.

    Attributes:
        request_id: Whose it is.
        token_ids: New tokens in order; empty only where the request ended without one.
        logprobs: One entry a token where the request asked for them, else None.
        finish_reason: Set in the last message of a request.
        stop_token_id: The id that ended it, where one did. It is not in ``token_ids``.
        num_cached_tokens: Prompt tokens taken from the prefix cache.
        error: Message for the client where ``finish_reason`` is ``error``.
        error_field: The parameter at fault, in the words of the HTTP API, where one is.
        speculation: Set in the last message of a request that the engine took up.
        decoded: How it decoded in this step; None where it did not, as in the one that ended its
            prompt.
        started_at_s: When it left the queue first, by `time.monotonic`; None where it has not.
    """

    request_id: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] | None = None
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    num_cached_tokens: int = 0
    error: str | None = None
    error_field: str | None = None
    speculation: Speculation | None = None
    decoded: Decoded | None = None
    started_at_s: float | None = None

"""One request in progress: its ids, how far they are computed, and when it ends."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dflash.kv_cache import PageTable
from dflash.request import FinishReason, GenerateRequest, TokenLogprobs, TokenOutput
from dflash.sampling import ChoiceRow, Chosen


@dataclass(eq=False, slots=True)
class Sequence:
    """A request and what it has come to. Only the engine's thread touches it.

    Attributes:
        request: What was asked.
        eos_token_ids: The model's end-of-sequence ids.
        token_ids: Prompt and output; the last one is never computed yet.
        output_token_ids: The output alone.
        num_computed: Tokens whose keys and values are in the pages.
        num_cached_tokens: Prompt tokens that others had computed; none of its own, which it finds
            again in the cache after a preemption.
        table: Its pages while it runs, None while it waits.
        last_turn: Number of the schedule that last computed tokens of it; 0 before the first.
        was_preempted: Whether it ever lost its pages.
    """

    request: GenerateRequest
    eos_token_ids: tuple[int, ...]
    token_ids: list[int] = field(init=False)
    output_token_ids: list[int] = field(default_factory=list)
    num_computed: int = 0
    num_cached_tokens: int = 0
    table: PageTable | None = None
    last_turn: int = 0
    was_preempted: bool = False
    _stop_token_ids: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.token_ids = list(self.request.prompt_token_ids)
        sampling = self.request.sampling
        eos = () if sampling.ignore_eos else self.eos_token_ids
        self._stop_token_ids = frozenset((*eos, *sampling.stop_token_ids))

    @property
    def num_tokens(self) -> int:
        """Tokens it holds, prompt and output."""
        return len(self.token_ids)

    @property
    def num_pending(self) -> int:
        """Tokens to compute before its next one can be chosen; 1 where it decodes."""
        return len(self.token_ids) - self.num_computed

    def choice_row(self) -> ChoiceRow:
        """Return what decides its next token, beside the logits."""
        return ChoiceRow(
            params=self.request.sampling,
            seed=self.request.seed,
            choice=self.request.choice,
            position=self.num_tokens,
            prompt_token_ids=self.request.prompt_token_ids,
            output_token_ids=self.output_token_ids,
            eos_token_ids=self.eos_token_ids,
        )

    def emit(self, chosen: Iterable[Chosen]) -> TokenOutput:
        """Take over chosen tokens up to the one that ends the request; return the message.

        Each token is looked at in order, first for a stop and then for the budget, so that the
        end does not depend on how many tokens one step brings.
        """
        token_ids: list[int] = []
        logprobs: list[TokenLogprobs] = []
        finish_reason, stop_token_id = None, None
        for choice in chosen:
            if choice.token_id in self._stop_token_ids:
                finish_reason, stop_token_id = FinishReason.STOP, choice.token_id
                break
            token_ids.append(choice.token_id)
            if choice.logprobs is not None:
                logprobs.append(choice.logprobs)
            if len(self.output_token_ids) + len(token_ids) == self.request.max_tokens:
                finish_reason = FinishReason.LENGTH
                break
        self.token_ids.extend(token_ids)
        self.output_token_ids.extend(token_ids)
        return TokenOutput(
            request_id=self.request.request_id,
            token_ids=tuple(token_ids),
            logprobs=tuple(logprobs) if self.request.sampling.num_logprobs is not None else None,
            finish_reason=finish_reason,
            stop_token_id=stop_token_id,
            num_cached_tokens=self.num_cached_tokens,
        )

    def last_words(self, finish_reason: FinishReason, error: str | None = None) -> TokenOutput:
        """Return the message of a request that ends without another token."""
        return TokenOutput(
            request_id=self.request.request_id,
            token_ids=(),
            finish_reason=finish_reason,
            num_cached_tokens=self.num_cached_tokens,
            error=error,
        )

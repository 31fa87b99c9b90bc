"""One request in progress: its ids, how far they are computed, and when it ends."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from dflash.following import Following
from dflash.grammar.mask import TokenMask
from dflash.grammar.matcher import Matcher
from dflash.kv_cache import PageTable
from dflash.plan import Decoding
from dflash.request import (
    Decoded,
    FinishReason,
    GenerateRequest,
    Speculation,
    TokenLogprobs,
    TokenOutput,
)
from dflash.sampling import ChoiceRow, Chosen
from dflash.stats import WhyPlain


@dataclass(eq=False, slots=True)
class Sequence:
    """A request and what it has come to. Only the engine's thread touches it.

    Attributes:
        request: What was asked.
        eos_token_ids: The model's end-of-sequence ids.
        matcher: Its grammar, where it has one.
        token_ids: Prompt and output; the last one is never computed yet.
        output_token_ids: The output alone.
        num_computed: Tokens whose keys and values are in the pages.
        num_cached_tokens: Prompt tokens that others had computed; none of its own, which it finds
            again in the cache after a preemption.
        table: Its pages while it runs, None while it waits.
        started_at_s: When it had pages first, by `time.monotonic`; None before.
        last_turn: Number of the schedule that last computed tokens of it; 0 before the first.
        was_preempted: Whether it ever lost its pages.
        followed_by: How each drafter follows it, by the drafter's name.
    """

    request: GenerateRequest
    eos_token_ids: tuple[int, ...]
    matcher: Matcher | None = None
    token_ids: list[int] = field(init=False)
    output_token_ids: list[int] = field(init=False)
    num_computed: int = 0
    num_cached_tokens: int = 0
    table: PageTable | None = None
    started_at_s: float | None = None
    last_turn: int = 0
    was_preempted: bool = False
    followed_by: defaultdict[str, Following] = field(default_factory=lambda: defaultdict(Following))
    _num_drafting: Counter[str] = field(default_factory=Counter)
    _num_drafted: int = 0
    _num_accepted: int = 0
    _num_plain: Counter[WhyPlain] = field(default_factory=Counter)
    _stop_token_ids: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.token_ids = list(self.request.known_token_ids)
        self.output_token_ids = list(self.request.emitted_token_ids)
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

    @property
    def num_left(self) -> int:
        """Tokens it may still emit."""
        return self.request.max_tokens - len(self.output_token_ids)

    @property
    def is_decoding(self) -> bool:
        """Whether it is past its prompt with one token to compute."""
        return self.num_pending == 1 and bool(self.output_token_ids)

    @property
    def decoding(self) -> Decoding:
        """What a planner sees of it."""
        return Decoding(
            self.request.request_id,
            len(self.token_ids),
            self.request.max_draft_length,
            self._num_drafted,
            self._num_accepted,
        )

    def stops_at(self, token_id: int) -> bool:
        """Whether this id ends it."""
        return token_id in self._stop_token_ids

    def choice_row(
        self, drafts: tuple[int, ...] = (), mask: TokenMask | Exception | None = None
    ) -> ChoiceRow:
        """Return what decides its next token, beside the logits.

        Args:
            drafts: Draft tokens before it, taken as emitted.
            mask: What its grammar allows there.
        """
        sampling = self.request.sampling
        output: list[int] = self.output_token_ids
        if drafts and sampling.reads_output(len(output)):
            output = [*output, *drafts]
        return ChoiceRow(
            params=sampling,
            seed=self.request.seed,
            choice=self.request.choice,
            position=len(self.token_ids) + len(drafts),
            prompt_token_ids=self.request.prompt_token_ids,
            output_token_ids=output,
            eos_token_ids=self.eos_token_ids,
            mask=mask,
        )

    def start(self, table: PageTable) -> None:
        """Leave the queue with these pages."""
        self.table = table
        if self.started_at_s is None:
            self.started_at_s = time.monotonic()

    def count_verified(self, drafter: str, num_drafted: int, num_accepted: int) -> Decoded:
        """Enter a step in which draft tokens of it were verified."""
        self._num_drafting[drafter] += 1
        self._num_drafted += num_drafted
        self._num_accepted += num_accepted
        return Decoded(drafter, num_drafted, num_accepted)

    def count_plain(self, drafter: str, reason: WhyPlain) -> Decoded:
        """Enter a step in which it decoded without draft tokens."""
        self._num_plain[reason] += 1
        # The bare word: an enum's member takes many times as long to cross.
        return Decoded(drafter, why_plain=reason.value)

    def emit(
        self,
        chosen: Iterable[Chosen],
        error: str | None = None,
        decoded: Decoded | None = None,
    ) -> TokenOutput:
        """Take over chosen tokens up to the one that ends the request; return the message.

        Each token is looked at in order, first for a stop and then for the budget, so that the
        end does not depend on how many tokens one step brings.

        Args:
            chosen: In order.
            error: Why it cannot go on after them; of no account where one of them ends it.
            decoded: How it decoded in this step, where it did.
        """
        token_ids: list[int] = []
        logprobs: list[TokenLogprobs] = []
        finish_reason, stop_token_id = None, None
        for choice in chosen:
            if self.stops_at(choice.token_id):
                finish_reason, stop_token_id = FinishReason.STOP, choice.token_id
                break
            token_ids.append(choice.token_id)
            if choice.logprobs is not None:
                logprobs.append(choice.logprobs)
            if len(self.output_token_ids) + len(token_ids) == self.request.max_tokens:
                finish_reason = FinishReason.LENGTH
                break
        if finish_reason is None and error is not None:
            finish_reason = FinishReason.ERROR
        self.token_ids.extend(token_ids)
        self.output_token_ids.extend(token_ids)
        return TokenOutput(
            request_id=self.request.request_id,
            token_ids=tuple(token_ids),
            logprobs=tuple(logprobs) if self.request.sampling.num_logprobs is not None else None,
            finish_reason=finish_reason,
            stop_token_id=stop_token_id,
            num_cached_tokens=self.num_cached_tokens,
            error=error if finish_reason is FinishReason.ERROR else None,
            speculation=self._speculation() if finish_reason is not None else None,
            decoded=decoded,
            started_at_s=self.started_at_s,
        )

    def last_words(self, finish_reason: FinishReason) -> TokenOutput:
        """Return the message of a request that ends between two steps."""
        return TokenOutput(
            request_id=self.request.request_id,
            token_ids=(),
            finish_reason=finish_reason,
            num_cached_tokens=self.num_cached_tokens,
            speculation=self._speculation(),
            started_at_s=self.started_at_s,
        )

    def _speculation(self) -> Speculation:
        return Speculation(
            num_steps=self._num_drafting.total() + self._num_plain.total(),
            num_drafting=dict(self._num_drafting),
            num_drafted=self._num_drafted,
            num_accepted=self._num_accepted,
            num_plain=dict(self._num_plain),
        )

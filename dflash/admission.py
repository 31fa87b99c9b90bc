"""Whether a request can ever be served by this target, and whether there is room to wait."""

from collections.abc import Iterable

from dflash.config import EngineLimits
from dflash.errors import OverloadedError, RequestError
from dflash.request import GenerateRequest
from dflash.stats import EngineCounts
from dflash.target import TargetFacts


def max_output_tokens(num_prompt_tokens: int, facts: TargetFacts) -> int:
    """Return the most tokens a prompt of this length can be given; none below 1."""
    # The last token emitted is never computed, so it takes a position but no slot.
    return min(facts.max_model_len - num_prompt_tokens, _num_slots(facts) - num_prompt_tokens + 1)


def check_request(request: GenerateRequest, facts: TargetFacts) -> None:
    """Refuse a request that this target cannot serve even alone.

    Pure, so any thread may call it.

    Raises:
        RequestError: Too long for the context or the pages, or an id outside the vocabulary.
    """
    _check_length(request, facts)
    _check_ids("prompt", request.known_token_ids, facts.vocab_size)
    _check_ids("stop_token_ids", request.sampling.stop_token_ids, facts.vocab_size)
    _check_ids("logit_bias", (id_ for id_, _ in request.sampling.logit_bias), facts.vocab_size)


def check_queue(
    request: GenerateRequest,
    limits: EngineLimits,
    counts: EngineCounts,
    retry_after_s: float = 1.0,
) -> None:
    """Refuse a request for which there is no room to wait.

    Requests that a free slot awaits are not counted as waiting, and a prompt over the whole bound
    of tokens may wait where no other does.

    Raises:
        OverloadedError: One more request, or its tokens, would be over the limits.
    """
    num_waiting = counts.num_waiting - max(0, limits.max_num_seqs - counts.num_running)
    if num_waiting >= limits.max_num_waiting:
        raise OverloadedError(
            f"{num_waiting} requests are waiting and engine.limits.max_num_waiting is "
            f"{limits.max_num_waiting}; retry in {retry_after_s:.0f} s",
            retry_after_s,
        )
    num_prompt = len(request.known_token_ids)
    if counts.num_waiting and counts.num_waiting_tokens + num_prompt > limits.max_waiting_tokens:
        raise OverloadedError(
            f"{counts.num_waiting_tokens} tokens are waiting, this prompt has {num_prompt} and "
            f"engine.limits.max_waiting_tokens is {limits.max_waiting_tokens}; retry in "
            f"{retry_after_s:.0f} s",
            retry_after_s,
        )


def _num_slots(facts: TargetFacts) -> int:
    return facts.num_pages * facts.page_size


def _check_length(request: GenerateRequest, facts: TargetFacts) -> None:
    num_prompt, limit = len(request.prompt_token_ids), facts.max_model_len
    if num_prompt >= limit:
        raise RequestError(
            f"prompt has {num_prompt} tokens and this model's context is {limit}, output "
            f"included; shorten the prompt to {limit - 1} tokens or fewer",
            "prompt",
        )
    if num_prompt + request.max_tokens > limit:
        raise RequestError(
            f"prompt has {num_prompt} tokens and max_tokens is {request.max_tokens}, together "
            f"over this model's {limit}; max_tokens can be {limit - num_prompt} at most",
            "max_tokens",
        )
    most_tokens = max_output_tokens(num_prompt, facts)
    if request.max_tokens > most_tokens:
        fix = (
            f"max_tokens can be {most_tokens} at most" if most_tokens > 0 else "shorten the prompt"
        )
        raise RequestError(
            f"prompt has {num_prompt} tokens and max_tokens is {request.max_tokens}, and all KV "
            f"pages together hold {_num_slots(facts)} tokens; {fix}, or serve with more "
            "engine.kv_cache.memory_gib",
            "max_tokens" if most_tokens > 0 else "prompt",
        )


def _check_ids(field: str, ids: Iterable[int], vocab_size: int) -> None:
    for id_ in ids:
        if not 0 <= id_ < vocab_size:
            raise RequestError(
                f"{field} holds token id {id_}; this model's ids are 0 to {vocab_size - 1}", field
            )

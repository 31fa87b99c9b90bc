"""Plain decoding of one request alone, without pages, batches or scheduler: the right answer."""

from dataclasses import dataclass, replace

from benchmarks.rigs.hash_lm import HashLM
from dflash.errors import EngineError
from dflash.grammar.compiler import GrammarCompiler
from dflash.request import FinishReason, GenerateRequest, TokenLogprobs
from dflash.sampling import ChoiceRow, choose


@dataclass(frozen=True, slots=True)
class Answer:
    """All that a request is given.

    Attributes:
        token_ids: Emitted tokens.
        logprobs: One entry a token where asked for.
        finish_reason: Why it ended.
        stop_token_id: The id that ended it, where one did.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    finish_reason: FinishReason | None
    stop_token_id: int | None


def serial_answer(
    model: HashLM, request: GenerateRequest, grammars: GrammarCompiler | None = None
) -> Answer:
    """Return what the request must be given, whatever runs beside it.

    Args:
        model: The target.
        request: The request.
        grammars: Of the target's vocabulary, where the request has a grammar.
    """
    matcher = grammars.matcher(request.grammar) if grammars and request.grammar else None
    eos = model.facts.eos_token_ids
    stops = {*request.sampling.stop_token_ids}
    if not request.sampling.ignore_eos:
        stops.update(eos)
    ids = list(request.prompt_token_ids)
    output: list[int] = []
    logprobs: list[TokenLogprobs] = []
    while len(output) < request.max_tokens:
        row = ChoiceRow(
            params=request.sampling,
            seed=request.seed,
            choice=request.choice,
            position=len(ids),
            prompt_token_ids=request.prompt_token_ids,
            output_token_ids=tuple(output),
            eos_token_ids=eos,
        )
        try:
            if matcher is not None:
                row = replace(row, mask=matcher.masks(output)[0])
            chosen = choose(model.next_logits(ids), [row])[0]
        except EngineError:
            return Answer(tuple(output), tuple(logprobs), FinishReason.ERROR, None)
        if chosen.token_id in stops:
            return Answer(tuple(output), tuple(logprobs), FinishReason.STOP, chosen.token_id)
        ids.append(chosen.token_id)
        output.append(chosen.token_id)
        if chosen.logprobs is not None:
            logprobs.append(chosen.logprobs)
    return Answer(tuple(output), tuple(logprobs), FinishReason.LENGTH, None)


def full_ids(request: GenerateRequest, answer: Answer) -> tuple[int, ...]:
    """Return prompt and answer, with the stop id where one ended it."""
    stop = () if answer.stop_token_id is None else (answer.stop_token_id,)
    return (*request.prompt_token_ids, *answer.token_ids, *stop)

"""Sampled requests: every temperature with every sampling parameter."""

from pathlib import Path

from benchmarks.law.draws import PARAMETERS, TEMPERATURES
from benchmarks.prompts import chat_token_ids, questions
from dflash.request import GenerateRequest, SamplingParams


def sampled_requests(model_folder: Path, max_tokens: int, copies: int) -> list[GenerateRequest]:
    """Return requests for the embedded model, each with a prompt and a seed of its own.

    Args:
        model_folder: Where its tokenizer lies.
        max_tokens: Most tokens of an answer.
        copies: Requests for each pair of temperature and parameters.
    """
    pairs = [
        (temperature, values)
        for _ in range(copies)
        for values in PARAMETERS
        for temperature in TEMPERATURES
    ]
    prompts = chat_token_ids(model_folder, questions(len(pairs), visit=2))
    return [
        GenerateRequest(
            request_id=f"request-{index}",
            prompt_token_ids=tuple(prompt),
            max_tokens=max_tokens,
            sampling=SamplingParams(temperature=temperature, **values),
            seed=index,
        )
        for index, (prompt, (temperature, values)) in enumerate(zip(prompts, pairs, strict=True))
    ]

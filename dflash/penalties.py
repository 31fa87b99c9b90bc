"""The logits of a row after its bias, penalties and bans."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from dflash.portable_math import Floats
from dflash.request import SamplingParams

BAN: Final = -100.0
"""A bias at or under this bans the id: an added -100 would still be drawn at high temperature."""


def processed_logits(
    logits: Tensor,
    params: SamplingParams,
    prompt_token_ids: Sequence[int],
    output_token_ids: Sequence[int],
    eos_token_ids: Sequence[int],
) -> Tensor:
    """Return the row after, in this order, bias, penalties and bans; itself where none applies.

    The repetition penalty counts ids of prompt and output, the other two those of the output.
    Computed in float64 and rounded once. What is NaN or inf stays so.

    Shapes:
        logits: ``[vocab]`` float32, not modified.
    """
    banned = _banned_ids(params, len(output_token_ids), eos_token_ids)
    is_penalised = params.repetition_penalty != 1.0 or (
        output_token_ids and (params.presence_penalty != 0.0 or params.frequency_penalty != 0.0)
    )
    if not (banned or is_penalised or params.logit_bias):
        return logits
    values = logits.numpy().astype(np.float64)
    for token_id, bias in params.logit_bias:
        values[token_id] += bias if bias > BAN else -np.inf
    _penalise(values, params, prompt_token_ids, output_token_ids)
    values[list(banned)] += -np.inf
    with np.errstate(over="ignore"):
        return torch.from_numpy(values.astype(np.float32))


def _banned_ids(
    params: SamplingParams, num_output_tokens: int, eos_token_ids: Sequence[int]
) -> set[int]:
    if num_output_tokens >= params.min_tokens:
        return set()
    return {*params.stop_token_ids, *(() if params.ignore_eos else eos_token_ids)}


def _penalise(
    values: Floats,
    params: SamplingParams,
    prompt_token_ids: Sequence[int],
    output_token_ids: Sequence[int],
) -> None:
    if params.repetition_penalty != 1.0:
        seen = list({*prompt_token_ids, *output_token_ids})
        old = values[seen]
        with np.errstate(over="ignore"):
            # Away from the model's wish on either side of 0.
            values[seen] = np.where(
                old > 0.0, old / params.repetition_penalty, old * params.repetition_penalty
            )
    if output_token_ids:
        counts = Counter(output_token_ids)
        times = np.fromiter(counts.values(), dtype=np.float64)
        values[list(counts)] -= params.frequency_penalty * times + params.presence_penalty

"""The law a row's token is drawn from, written down once more, without noise and in plain sums."""

import numpy as np
import torch
from numpy.typing import NDArray

from dflash.penalties import processed_logits
from dflash.request import SamplingParams
from dflash.sampling import ChoiceRow

Law = NDArray[np.float64]


def law_of(logits: torch.Tensor, row: ChoiceRow) -> Law:
    """Return the probability of each id at a row: bias, penalties, temperature, truncation.

    Shapes:
        logits: ``[vocab]`` float32.
        return: ``[vocab]``, sums to 1.
    """
    values = processed_logits(
        logits, row.params, row.prompt_token_ids, row.output_token_ids, row.eos_token_ids
    )
    return truncated_softmax(values.numpy().astype(np.float64), row.params)


def truncated_softmax(values: NDArray[np.float64], params: SamplingParams) -> Law:
    """Return the softmax at ``params.temperature`` over what top-k, top-p and min-p leave.

    A law at temperature 0 is the largest value's alone.

    Shapes:
        values: ``[vocab]``.
    """
    order = np.argsort(-values, kind="stable")
    law = np.zeros(values.size)
    if params.temperature == 0.0:
        law[order[0]] = 1.0
        return law
    shares = np.exp((values[order] - values[order[0]]) / params.temperature)
    if params.top_k:
        shares[params.top_k :] = 0.0
    # An id stays where the ids before it do not yet reach the share.
    before = np.cumsum(shares) - shares
    shares[before >= params.top_p * shares.sum()] = 0.0
    shares[shares < params.min_p] = 0.0
    law[order] = shares / shares.sum()
    return law

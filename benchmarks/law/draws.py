"""Plain decoding's draws over many seeds, held against the law they must follow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.law.chi_square import chi_square_p
from benchmarks.law.laws import law_of
from dflash.request import SamplingParams
from dflash.sampling import ChoiceRow, choose

TEMPERATURES = (0.3, 1.0, 2.0)
# Each parameter alone, then all together.
PARAMETERS = (
    {},
    {"top_k": 5},
    {"top_p": 0.8},
    {"min_p": 0.1},
    {"presence_penalty": 1.5},
    {"frequency_penalty": -0.5},
    {"repetition_penalty": 1.3},
    {"logit_bias": ((0, -1.0), (6, 2.0))},
    {"stop_token_ids": (3,), "min_tokens": 9},
    {
        "top_k": 6,
        "top_p": 0.95,
        "min_p": 0.01,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.2,
        "repetition_penalty": 1.1,
        "logit_bias": ((5, 0.7),),
    },
)
_VOCABULARIES = (8, 49_152)
_OUTPUT = (1, 1, 4, 7)
_CHUNK = 1000


@dataclass(frozen=True, slots=True)
class LawTest:
    """One law and how likely a true draw is to lie as far from it as what was drawn.

    Attributes:
        vocab: Size of the vocabulary.
        params: The sampling parameters.
        num_draws: Seeds.
        p: Evenly spread over [0, 1] where the draws are true.
    """

    vocab: int
    params: SamplingParams
    num_draws: int
    p: float


def num_law_tests() -> int:
    """Return how many laws `law_tests` holds draws against."""
    return len(_VOCABULARIES) * len(TEMPERATURES) * len(PARAMETERS)


def law_tests(num_draws: int) -> Iterator[LawTest]:
    """Draw with as many seeds under each law, on both vocabularies; no two laws share a seed."""
    seeds = count()
    for vocab in _VOCABULARIES:
        logits = 2 * torch.randn(vocab, generator=torch.Generator().manual_seed(vocab))
        for temperature in TEMPERATURES:
            for values in PARAMETERS:
                params = SamplingParams(temperature=temperature, **values)
                row = ChoiceRow(params, 0, 0, len(_OUTPUT) + 1, (2,), _OUTPUT, (0,))
                seen = drawn(logits, [replace(row, seed=next(seeds)) for _ in range(num_draws)])
                p = chi_square_p(seen, law_of(logits, row))
                yield LawTest(vocab, params, num_draws, p)


def drawn(logits: torch.Tensor, rows: Sequence[ChoiceRow]) -> NDArray[np.int64]:
    """Return how often each id is chosen, every row from the same logits.

    Shapes:
        logits: ``[vocab]`` float32.
        return: ``[vocab]``.
    """
    token_ids = [
        chosen.token_id
        for start in range(0, len(rows), _CHUNK)
        for chosen in choose(
            logits.expand(len(rows[start : start + _CHUNK]), -1), rows[start : start + _CHUNK]
        )
    ]
    return np.bincount(token_ids, minlength=logits.shape[0])

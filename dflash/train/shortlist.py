"""Which ids a drafter may predict: those the target emits most, and those it may not miss."""

import torch
from torch import Tensor

from dflash.train.bounds import check_within


def shortlist(counts: Tensor, always: Tensor, size: int) -> Tensor:
    """Return the ids to keep, ascending.

    Ids that were never seen fill what is left from the lowest on: in the vocabularies of
    byte-pair encoders the low ids are the common pieces.

    Args:
        counts: How often the target emitted each id, ``[vocab]``.
        always: Ids to keep whatever their count.
        size: How many to keep; all ids if it is larger than the vocabulary.

    Raises:
        ConfigError: There is no room for all of those to keep.
    """
    check_within("--draft-vocab-size", size, len(always))
    ranks = counts.double()
    ranks[always] = torch.inf
    order = torch.argsort(ranks, descending=True, stable=True)
    return order[:size].sort().values

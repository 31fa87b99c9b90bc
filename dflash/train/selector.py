"""The candidate selector of DFlash 2: which of a slot's best tokens follows the one before it."""

import torch
from torch import Tensor, nn

from dflash.train.head import DraftHead
from dflash.train.layers import Linear
from dflash.train.shape import DrafterShape

# Large enough for the successors' gradient to be felt, small beside the unary logits.
_PREDECESSOR_STD = 0.2


class CandidateSelector(nn.Module):
    """Adds ``<P[previous] * g, N[candidate]>`` to the unary logits; starts as exactly 0."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.top_k = shape.selector_top_k
        codebook = (shape.vocab_size, shape.selector_rank)
        self.predecessor_codebook = nn.Parameter(torch.randn(codebook) * _PREDECESSOR_STD)
        self.successor_codebook = nn.Parameter(torch.zeros(codebook))
        self.hidden_projection = Linear(shape.hidden_size, shape.selector_rank)

    def forward(self, hidden: Tensor, previous: Tensor, candidates: Tensor) -> Tensor:
        """Return what the pair of tokens adds to each candidate, ``[rows, candidates]`` float32.

        Args:
            hidden: Final normalised states of the slots, ``[rows, hidden]``.
            previous: Target ids chosen for the slots before, ``[rows]``.
            candidates: Target ids to weigh, ``[rows, candidates]``.
        """
        gate = self.hidden_projection(hidden).float() * self.predecessor_codebook[previous]
        return (self.successor_codebook[candidates] @ gate[:, :, None]).squeeze(-1)


@torch.no_grad()
def draft(
    head: DraftHead, selector: CandidateSelector | None, hidden: Tensor, anchor_ids: Tensor
) -> Tensor:
    """Return the greedy drafts of each block, ``[blocks, slots]`` target ids.

    Args:
        head: The target's head over the shortlist.
        selector: Weighs each slot's candidates by the token chosen before; None takes the best.
        hidden: Final normalised states, ``[blocks, slots, hidden]``.
        anchor_ids: The tokens before the first slots, ``[blocks]``.
    """
    count = selector.top_k if selector else 1
    values, ids = (
        part.unflatten(0, hidden.shape[:2]) for part in head.best(hidden.flatten(0, 1), count)
    )
    if selector is None:
        return ids.squeeze(-1)
    return walk(selector, hidden, values, ids, anchor_ids)


@torch.no_grad()
def walk(
    selector: CandidateSelector, hidden: Tensor, values: Tensor, ids: Tensor, anchor_ids: Tensor
) -> Tensor:
    """Return the candidate chosen in each slot, from left to right, ``[blocks, slots]``.

    Args:
        selector: Weighs a slot's candidates by the token chosen before.
        hidden: Final normalised states, ``[blocks, slots, hidden]``.
        values: Logits of the candidates, ``[blocks, slots, candidates]`` float32.
        ids: Target ids of the candidates, ``[blocks, slots, candidates]``.
        anchor_ids: The tokens before the first slots, ``[blocks]``.
    """
    previous, chosen = anchor_ids, []
    for slot in range(hidden.shape[1]):
        scores = values[:, slot] + selector(hidden[:, slot], previous, ids[:, slot])
        previous = ids[:, slot].gather(1, scores.argmax(dim=1, keepdim=True)).squeeze(1)
        chosen.append(previous)
    return torch.stack(chosen, dim=1)

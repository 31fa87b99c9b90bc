"""The target's head over a shortlist of its ids: cheap enough to draft with, and to train with."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# The logits of so many rows are worked on at once: they fit the processor's cache.
_ROWS_AT_ONCE = 512
_SMALLEST_SHARE = 1e-30


@dataclass(frozen=True, slots=True)
class DraftHead:
    """The frozen rows of the target's head that a drafter may predict.

    Attributes:
        weight: Rows of the target's head, ``[draft_vocab, hidden]``.
        ids: Target id of each row, ascending, ``[draft_vocab]`` int64.
        rows: Row of each target id, -1 where it has none, ``[vocab]`` int64.
    """

    weight: Tensor
    ids: Tensor
    rows: Tensor

    @torch.no_grad()
    def best(self, hidden: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the best logits (float32) and their target ids, each ``[rows, count]``."""
        tops = [
            (part @ self.weight.T).float().topk(count, dim=-1)
            for part in hidden.split(_ROWS_AT_ONCE)
        ]
        ids = self.ids[torch.cat([top.indices for top in tops])]
        return torch.cat([top.values for top in tops]), ids

    def logits(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """Return the logits of chosen target ids, ``[rows, ids]`` float32, with a gradient."""
        weight = self.weight[self.rows[ids]]
        return (weight @ hidden[:, :, None]).squeeze(-1).float()

    def cross_entropy(
        self, hidden: Tensor, labels: Tensor, candidates: int
    ) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy of each row, with a gradient, and its most likely ids.

        Args:
            hidden: ``[rows, hidden]``.
            labels: Target ids, every one of them in the shortlist, ``[rows]``.
            candidates: How many of the most likely ids to return.

        Returns:
            ``[rows]`` float32 and target ids ``[rows, candidates]``.
        """
        losses, best = _CrossEntropy.apply(hidden, self.weight, self.rows[labels], candidates)
        return losses, self.ids[best]


def draft_head(weight: Tensor, ids: Tensor) -> DraftHead:
    """Return the head over a shortlist.

    Args:
        weight: The target's whole head, ``[vocab, hidden]``.
        ids: The target ids to keep, ascending and without repeats, ``[draft_vocab]`` int64.
    """
    rows = torch.full((weight.shape[0],), -1)
    rows[ids] = torch.arange(len(ids))
    return DraftHead(weight[ids].contiguous(), ids, rows)


class _CrossEntropy(torch.autograd.Function):
    """Softmax cross-entropy through a frozen head, a few rows at a time.

    The gradient of each row is made beside its loss, so the logits never exist all at once.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, candidates: int
    ) -> tuple[Tensor, Tensor]:
        losses, gradients, best = [], [], []
        for part, wanted in zip(
            hidden.split(_ROWS_AT_ONCE), labels.split(_ROWS_AT_ONCE), strict=True
        ):
            shares = (part @ weight.T).softmax(dim=-1)
            best.append(shares.topk(candidates, dim=-1).indices)
            share = shares.gather(1, wanted[:, None])
            losses.append(-share.float().clamp_min(_SMALLEST_SHARE).log().squeeze(1))
            shares.scatter_add_(1, wanted[:, None], -torch.ones_like(share))
            gradients.append(shares @ weight)
        ctx.save_for_backward(torch.cat(gradients))
        ids = torch.cat(best)
        ctx.mark_non_differentiable(ids)
        return torch.cat(losses), ids

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return (gradient * grad_outputs[0][:, None]).to(gradient.dtype), None, None, None

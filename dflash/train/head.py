"""The target's head over a shortlist of its ids: cheap enough to draft with, and to train with."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# The logits of so many rows are worked on at once: they fit the processor's cache.
_ROWS_AT_ONCE = 512
# They are filled up to a multiple of this: few shapes, so that their kernels are made once.
_ROW_STEP = 128
_SMALLEST_SHARE = 1e-30
# How much of a row's gradient leads to the target's distribution, where it is known.
_SOFT = 0.5


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
        self, hidden: Tensor, labels: Tensor, taught: Tensor | None, candidates: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss of each row, with a gradient, and what its labels and best ids are.

        Args:
            hidden: ``[rows, hidden]``.
            labels: Target ids, every one of them in the shortlist, ``[rows]``.
            taught: What the target's head reads where it chooses the label, ``[rows, hidden]``:
                the gradient leads as much to the target's distribution over the shortlist as to
                the label. None learns the label alone.
            candidates: How many of the most likely ids to return.

        Returns:
            The loss of the label ``[rows]`` float32; the likelihood of the label ``[rows]``
            float32; the most likely target ids ``[rows, candidates]``.
        """
        losses, likelihoods, best = _CrossEntropy.apply(
            hidden, self.weight, self.rows[labels], taught, candidates
        )
        return losses, likelihoods, self.ids[best]


def draft_head(weight: Tensor, ids: Tensor) -> DraftHead:
    """Return the head over a shortlist, on the device of the whole head.

    Args:
        weight: The target's whole head, ``[vocab, hidden]``.
        ids: The target ids to keep, ascending and without repeats, ``[draft_vocab]`` int64.
    """
    ids = ids.to(weight.device)
    rows = torch.full((weight.shape[0],), -1, device=weight.device)
    rows[ids] = torch.arange(len(ids), device=weight.device)
    return DraftHead(weight[ids].contiguous(), ids, rows)


class _CrossEntropy(torch.autograd.Function):
    """Softmax cross-entropy through a frozen head, a few rows at a time.

    The gradient of each row is made beside its loss, so the logits never exist all at once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        labels: Tensor,
        taught: Tensor | None,
        candidates: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        count = len(hidden)
        hidden, labels = _filled_up(hidden), _filled_up(labels)
        taught = None if taught is None else _filled_up(taught)
        parts = [
            _part(
                hidden[start : start + _ROWS_AT_ONCE],
                weight,
                labels[start : start + _ROWS_AT_ONCE],
                None if taught is None else taught[start : start + _ROWS_AT_ONCE],
                candidates,
            )
            for start in range(0, count, _ROWS_AT_ONCE)
        ]
        losses, likelihoods, best, gradient = (
            torch.cat(column)[:count] for column in zip(*parts, strict=True)
        )
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(likelihoods, best)
        return losses, likelihoods, best

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None, None, None]:
        (gradient,) = ctx.saved_tensors
        scaled = (gradient * grad_outputs[0][:, None]).to(gradient.dtype)
        return scaled, None, None, None, None


def _filled_up(rows: Tensor) -> Tensor:
    missing = -len(rows) % _ROW_STEP
    return torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])


def _part(
    hidden: Tensor, weight: Tensor, labels: Tensor, taught: Tensor | None, candidates: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return losses, likelihoods of the labels, best rows of the head, gradients."""
    shares = (hidden @ weight.T).softmax(dim=-1)
    best = shares.topk(candidates, dim=-1).indices
    place = labels[:, None]
    likelihoods = shares.gather(1, place).float().squeeze(1)
    losses = -likelihoods.clamp_min(_SMALLEST_SHARE).log()
    hard = 1.0
    if taught is not None:
        # Only the gradient is made: the value would cost as much again, and is only looked at.
        shares.sub_((taught @ weight.T).softmax(dim=-1), alpha=_SOFT)
        hard = 1.0 - _SOFT
    shares.scatter_add_(1, place, torch.full_like(place, -hard, dtype=shares.dtype))
    return losses, likelihoods, best, shares @ weight

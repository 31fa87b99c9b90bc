"""What a drafter is trained on: the token at each slot, and the token after a known one."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from dflash.train.head import DraftHead
from dflash.train.selector import CandidateSelector

_ALPHA = 0.5


@dataclass(frozen=True, slots=True)
class Labels:
    """What the slots of each block should predict.

    Attributes:
        ids: Target ids, ``[blocks, slots]`` int64.
        previous: Target ids one slot earlier, the anchor's first, ``[blocks, slots]`` int64.
        known: Whether a slot is trained on: a prefix of each block, ``[blocks, slots]`` bool.
        rows: Row of the batch's features at which the target chose the label,
            ``[blocks, slots]`` int64; anything where not known.
    """

    ids: Tensor
    previous: Tensor
    known: Tensor
    rows: Tensor

    def to(self, device: torch.device) -> "Labels":
        """Return the same labels on a device."""
        return replace(
            self,
            ids=self.ids.to(device),
            previous=self.previous.to(device),
            known=self.known.to(device),
            rows=self.rows.to(device),
        )


@dataclass(frozen=True, slots=True)
class Loss:
    """The parts of a step's loss.

    Attributes:
        base: Weighted cross-entropy of the slots with their labels over the shortlist, a scalar.
            Its gradient leads as much to the target's distribution where that is known: that
            part's value is not made.
        selector: Weighted cross-entropy of the selector over its candidates; 0 before it trains.
        likelihoods: What the drafter gives each label, ``[blocks, slots]``; 0 where not known.
    """

    base: Tensor
    selector: Tensor
    likelihoods: Tensor

    @property
    def total(self) -> Tensor:
        """The scalar to differentiate; its value is of the labels alone, as `base` says."""
        return self.base + self.selector


def position_weights(known: Tensor, decay: float) -> Tensor:
    """Return ``exp(-(k - 1) / decay)`` for known slots ``k = 1..``, 0 for the others."""
    distance = torch.arange(known.shape[1], device=known.device)
    return torch.exp(-distance / decay) * known


def acceptance_weights(likelihoods: Tensor, known: Tensor) -> Tensor:
    """Return weights that follow how likely each slot is to be reached and to matter.

    With ``q = (1 - alpha) * likelihood + alpha``, slot ``j`` weighs the sum over ``m >= j`` of the
    product of ``q`` over slots up to ``m``: an expected number of accepted tokens that depends
    on slot ``j``.

    Args:
        likelihoods: What the drafter gives each label, ``[blocks, slots]``.
        known: Which slots are trained on, ``[blocks, slots]``.
    """
    smoothed = (1 - _ALPHA) * likelihoods.detach() + _ALPHA
    reached = smoothed.cumprod(dim=1) * known
    return reached.flip(1).cumsum(dim=1).flip(1) * known


@dataclass(frozen=True, slots=True)
class Objective:
    """What to minimise.

    Attributes:
        head: The target's head over the shortlist.
        decay: Slots of one e-fold of a slot's weight; None weighs by `acceptance_weights`.
        selector: The selector to train beside the drafter; None before it takes part.
    """

    head: DraftHead
    decay: float | None
    selector: CandidateSelector | None

    def __call__(self, hidden: Tensor, labels: Labels, taught: Tensor | None) -> Loss:
        """Return the loss of a batch.

        Args:
            hidden: Final normalised states, ``[blocks, slots, hidden]``.
            labels: What they should predict.
            taught: What the target's head reads, ``[tokens, hidden]``; None learns labels alone.
        """
        known = labels.known
        if not known.any():
            # Differentiable all the same, and not finite where the states are not.
            zero = hidden.float().sum() * 0.0
            return Loss(zero, zero.detach(), torch.zeros_like(known, dtype=torch.float32))
        rows, wanted = hidden[known], labels.ids[known]
        losses, shares, best = self.head.cross_entropy(
            rows,
            wanted,
            None if taught is None else taught[labels.rows[known]],
            self.selector.top_k if self.selector else 0,
        )
        likelihoods = shares.new_zeros(known.shape).masked_scatter(known, shares)
        weights = self._weights(likelihoods, known)[known]
        base = (losses * weights).sum() / weights.sum()
        if self.selector is None:
            return Loss(base, base.new_zeros(()), likelihoods)
        found = (best == wanted[:, None]).any(dim=1)
        scores = self.head.logits(rows[found], best[found])
        scores = scores + self.selector(rows[found], labels.previous[known][found], best[found])
        place = (best[found] == wanted[found, None]).int().argmax(dim=1)
        losses = functional.cross_entropy(scores, place, reduction="none")
        return Loss(base, (losses * weights[found]).sum() / weights.sum(), likelihoods)

    def _weights(self, likelihoods: Tensor, known: Tensor) -> Tensor:
        if self.decay is None:
            return acceptance_weights(likelihoods, known)
        return position_weights(known, self.decay)

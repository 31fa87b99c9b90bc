"""Acceptance length on sequences that no step trains on."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dflash.train.batches import block_tokens
from dflash.train.frozen import FrozenTarget
from dflash.train.model import Blocks, Drafter
from dflash.train.selector import draft
from dflash.train.sequences import TappedSequence


@dataclass(frozen=True, slots=True)
class Tally:
    """Tokens emitted and the draft passes that it took.

    Attributes:
        steps: Draft passes.
        tokens: Tokens they led to: the accepted ones, and one more a pass.
        reached: For each slot, passes in which every slot before it was accepted.
        accepted: For each slot, passes in which it was accepted with all before it.
    """

    steps: int
    tokens: int
    reached: tuple[int, ...]
    accepted: tuple[int, ...]

    @property
    def acceptance_length(self) -> float:
        """Tokens a pass, the extra one included."""
        return self.tokens / self.steps


@torch.no_grad()
def serve_again(
    drafter: Drafter,
    target: FrozenTarget,
    sequence: TappedSequence,
    second_version: bool,
) -> Tally:
    """Return how a sequence would have been served by greedy drafts.

    The drafts are compared with the tokens that the target emitted, and the anchors are placed
    as serving places them: each at the extra token of the pass before. Of a greedy sequence this
    is the served acceptance length.

    Args:
        drafter: The drafter.
        target: The target's part.
        sequence: Held out; it has at least two tokens after its prompt.
        second_version: Whether convolutions and selector take part.
    """
    first, end = sequence.prompt_length, len(sequence.token_ids) - 1
    anchors = torch.arange(first, end)
    tokens = block_tokens(sequence.token_ids, anchors, drafter.shape.block_size)
    context = drafter.context(sequence.features[:end].to(target.embedding), (end,))
    # Every anchor at once, then a walk over the few that serving visits: far fewer passes.
    blocks = Blocks(tokens[:, 0], anchors, (len(anchors),)).to(target.device)
    hidden = drafter(context, blocks, target.embedding, second_version)
    selector = drafter.candidate_selector if second_version else None
    drafts = draft(target.head, selector, hidden, blocks.anchor_ids)
    return tally_of(drafts.cpu(), tokens[:, 1:])


def tally_of(drafts: Tensor, tokens: Tensor) -> Tally:
    """Return the tally of drafts made at every anchor of a sequence, in order.

    Args:
        drafts: What was drafted behind each anchor, ``[anchors, slots]``.
        tokens: What the target emitted there, -1 after the end, ``[anchors, slots]``.
    """
    accepted = (drafts == tokens).cumprod(dim=1).sum(dim=1).tolist()
    return _walked(accepted, drafts.shape[1])


def total(tallies: Sequence[Tally]) -> Tally:
    """Return the sum of several tallies."""
    return Tally(
        steps=sum(tally.steps for tally in tallies),
        tokens=sum(tally.tokens for tally in tallies),
        reached=tuple(map(sum, zip(*(tally.reached for tally in tallies), strict=True))),
        accepted=tuple(map(sum, zip(*(tally.accepted for tally in tallies), strict=True))),
    )


def _walked(accepted: Sequence[int], slots: int) -> Tally:
    """Return the tally of a walk; ``accepted`` is by anchor, one for each token but the last."""
    visited = []
    place = 0
    while place < len(accepted):
        visited.append((accepted[place], len(accepted) - place))
        place += accepted[place] + 1
    return Tally(
        steps=len(visited),
        # Where the sequence ends inside the drafts there is no extra token.
        tokens=sum(min(kept + 1, left) for kept, left in visited),
        reached=tuple(sum(kept >= k and left > k for kept, left in visited) for k in range(slots)),
        accepted=tuple(sum(kept > k for kept, _ in visited) for k in range(slots)),
    )

"""Training an MTP head: sequences, draws and loss of a block drafter, chained links for blocks."""

import time
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from dflash.errors import ConfigError
from dflash.train.batches import Batch, block_tokens
from dflash.train.frozen import FrozenTarget
from dflash.train.held_out import Tally, tally_of
from dflash.train.loss import Loss, Objective
from dflash.train.mtp_model import Chains, MtpHead, Past
from dflash.train.plan import Plan
from dflash.train.selector import draft
from dflash.train.sequences import TappedSequence
from dflash.train.trainer import Trainer


class MtpTrainer(Trainer):
    """An MTP head in training.

    Args:
        head: What to train, on the target's device.
        target: The target's part.
        plan: How to train.
        clock: Seconds from any start; only differences matter.

    Raises:
        ConfigError: The target's part lacks the last layers, whose states the head reads.
    """

    def __init__(
        self,
        head: MtpHead,
        target: FrozenTarget,
        plan: Plan,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if target.teacher is None:
            raise ConfigError(
                "an MTP head reads the states of the target's last layers; leave out --labels-only"
            )
        # The loop asks of a drafter what both kinds have: its parameters and its shape.
        super().__init__(cast("Any", head), target, plan, clock)
        self.head = head
        self._teacher = target.teacher

    @torch.no_grad()
    def serve_again(self, sequence: TappedSequence) -> Tally:
        """Return how a sequence would have been served by greedy chains.

        Links are fed the right tokens: where a draft
        differs from them, its chain counts no further.
        """
        device, end = self.target.device, len(sequence.token_ids) - 1
        anchors = torch.arange(sequence.prompt_length, end)
        tokens = block_tokens(sequence.token_ids, anchors, self.head.shape.block_size)
        past = self._past(
            sequence.features[:end].to(device), sequence.token_ids[:end].long().to(device), (end,)
        )
        hidden = self.head(
            past,
            Chains(tokens[:, :-1].clamp_min(0), anchors, (len(anchors),)).to(device),
            self.target.embedding,
        )
        drafts = draft(self.target.head, None, hidden, tokens[:, 0])
        return tally_of(drafts.cpu(), tokens[:, 1:])

    def _loss(self, batch: Batch) -> Loss:
        blocks, labels = batch.blocks, batch.labels
        past = self._past(batch.features, batch.token_ids, batch.lengths)
        # After a sequence's end there is no token; nothing is learnt from those links.
        chains = Chains(labels.previous.clamp_min(0), blocks.anchors, blocks.per_sequence)
        hidden = self.head(past, chains, self.target.embedding)
        objective = Objective(self.target.head, self.plan.decay, selector=None)
        return objective(hidden, labels, past.states)

    def _past(self, features: Tensor, token_ids: Tensor, lengths: tuple[int, ...]) -> Past:
        deepest = features[:, -self.head.shape.hidden_size :].to(self.target.embedding.dtype)
        return Past(token_ids, self._teacher.states(deepest, lengths), lengths)

"""Training an MTP head: sequences, draws and loss of a block drafter, chained links for blocks."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from dflash.errors import ConfigError
from dflash.train.batches import Batch, SequencePool, block_tokens, make_batch
from dflash.train.frozen import FrozenTarget
from dflash.train.held_out import Tally, tally_of
from dflash.train.loss import Loss, Objective
from dflash.train.mtp_model import Chains, MtpHead, Past
from dflash.train.plan import Plan
from dflash.train.selector import draft
from dflash.train.sequences import TappedSequence
from dflash.train.trainer import Trainer


@dataclass(frozen=True, slots=True)
class MtpBatch(Batch):
    """What one step computes.

    Attributes:
        token_ids: The token of each row of features, ``[rows]`` int64.
    """

    token_ids: Tensor

    def to(self, device: torch.device) -> "MtpBatch":
        """Return the same batch on a device; one that is there already is not copied."""
        return replace(
            self,
            features=self.features.to(device),
            blocks=self.blocks.to(device),
            labels=self.labels.to(device),
            token_ids=self.token_ids.to(device),
        )


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

        As `dflash.train.held_out.serve_again` does. Links are fed the right tokens: where a draft
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

    def _batch(self, sequences: SequencePool) -> MtpBatch:
        plan = self.plan
        drawn = self._draw.next(plan.sequences_per_step, len(sequences))
        some = [sequences[index] for index in drawn]
        batch = make_batch(
            some,
            self._predictable,
            self.head.shape.block_size,
            plan.anchors_per_sequence,
            torch.Generator().manual_seed(plan.seed + self.step),
        )
        # As many as there are rows of features; what fills a sequence up is seen by no chain.
        parts = zip(some, batch.lengths, strict=True)
        token_ids = torch.cat([_filled(s.token_ids[:-1].long(), length) for s, length in parts])
        return MtpBatch(
            features=batch.features,
            lengths=batch.lengths,
            blocks=batch.blocks,
            labels=batch.labels,
            num_context=batch.num_context,
            token_ids=token_ids,
        )

    def _loss(self, batch: Batch) -> Loss:
        batch = cast("MtpBatch", batch)
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


def _filled(token_ids: Tensor, length: int) -> Tensor:
    return functional.pad(token_ids, (0, length - len(token_ids)))

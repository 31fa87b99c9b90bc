"""Which sequences and which anchors a step trains on: seeded, and resumable from a few numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor

from dflash.train.loss import Labels
from dflash.train.model import Blocks
from dflash.train.sequences import TappedSequence

# A sequence's context is filled up to a multiple of so many rows: products of the same few shapes
# again and again find their kernels made, where every new shape has them made first.
_CONTEXT_STEP = 64


class SequencePool(Protocol):
    """Sequences by index; a list of them is one."""

    def __len__(self) -> int:
        """How many there are by now."""
        ...

    def __getitem__(self, index: int, /) -> TappedSequence:
        """The sequence at an index."""
        ...


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step computes.

    Attributes:
        features: Context of every sequence, packed, ``[rows, taps * hidden]``; rows of 0, which no
            block sees, fill each sequence up.
        token_ids: The token of each row, ``[rows]`` int64; 0 where a row only fills up.
        lengths: Rows of each sequence.
        blocks: The blocks to draft.
        labels: What they should predict.
        num_context: Rows of features that are a sequence's own and fill nothing up.
    """

    features: Tensor
    token_ids: Tensor
    lengths: tuple[int, ...]
    blocks: Blocks
    labels: Labels
    num_context: int

    def to(self, device: torch.device) -> "Batch":
        """Return the same batch on a device; one that is there already is not copied."""
        return replace(
            self,
            features=self.features.to(device),
            token_ids=self.token_ids.to(device),
            blocks=self.blocks.to(device),
            labels=self.labels.to(device),
        )


class Draw:
    """Draws sequences without repeats until all were drawn, then starts over.

    Sequences that arrive while it runs join the round at hand.

    Args:
        seed: The same seed draws the same sequences from the same arrivals.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._num_known, self._num_draws = 0, 0
        self._waiting: list[int] = []

    def next(self, count: int, num_sequences: int) -> list[int]:
        """Return the indices of the next sequences, fewer at the end of a round.

        Args:
            count: How many are wanted.
            num_sequences: How many there are by now; never fewer than before.
        """
        self._waiting.extend(range(self._num_known, num_sequences))
        self._num_known = num_sequences
        if not self._waiting:
            self._waiting = list(range(num_sequences))
        generator = torch.Generator().manual_seed(self._seed + self._num_draws)
        self._num_draws += 1
        order = torch.randperm(len(self._waiting), generator=generator).tolist()
        self._waiting = [self._waiting[place] for place in order]
        drawn, self._waiting = self._waiting[:count], self._waiting[count:]
        return drawn

    def state(self) -> dict[str, int | list[int]]:
        """Return what `restore` needs to draw on from here."""
        return {"known": self._num_known, "draws": self._num_draws, "waiting": self._waiting}

    def restore(self, state: dict) -> None:
        """Continue where `state` was taken."""
        self._num_known, self._num_draws = state["known"], state["draws"]
        self._waiting = list(state["waiting"])


def make_batch(
    sequences: Sequence[TappedSequence],
    predictable: Tensor,
    block_size: int,
    num_anchors: int,
    generator: torch.Generator,
) -> Batch:
    """Return a batch on the CPU with anchors drawn from the responses, without repeats.

    Args:
        sequences: What to train on; each has at least two tokens after its prompt.
        predictable: Which ids can be predicted, ``[vocab]`` bool: the first other one ends its
            block's labels.
        block_size: Slots of a block.
        num_anchors: Most anchors of one sequence.
        generator: Source of the draw, of the CPU: the same anchors for every device.
    """
    anchors, tokens, starts = [], [], []
    contexts = [_filled_up(sequence.features[:-1]) for sequence in sequences]
    lengths = tuple(len(context) for context in contexts)
    for sequence, start in zip(sequences, accumulate(lengths, initial=0), strict=False):
        first, last = sequence.prompt_length, len(sequence.token_ids) - 2
        order = torch.randperm(last - first + 1, generator=generator)
        drawn = (first + order[:num_anchors]).sort().values
        anchors.append(drawn)
        tokens.append(block_tokens(sequence.token_ids, drawn, block_size))
        starts.append(start + drawn)
    per_sequence = tuple(len(drawn) for drawn in anchors)
    ids = torch.cat(tokens)
    return Batch(
        features=torch.cat(contexts),
        token_ids=torch.cat([_filled_up(s.token_ids[:-1].long()) for s in sequences]),
        lengths=lengths,
        blocks=Blocks(ids[:, 0], torch.cat(anchors), per_sequence),
        labels=_labels(ids, torch.cat(starts), predictable),
        num_context=sum(len(sequence.features) - 1 for sequence in sequences),
    )


def _filled_up(rows: Tensor) -> Tensor:
    return torch.cat([rows, rows.new_zeros(-len(rows) % _CONTEXT_STEP, *rows.shape[1:])])


def block_tokens(token_ids: Tensor, anchors: Tensor, block_size: int) -> Tensor:
    """Return the tokens from each anchor on, -1 after the end, ``[anchors, block_size]``."""
    padded = torch.nn.functional.pad(token_ids.long(), (0, block_size), value=-1)
    return padded[anchors[:, None] + torch.arange(block_size)]


def _labels(tokens: Tensor, anchor_rows: Tensor, predictable: Tensor) -> Labels:
    ids = tokens[:, 1:]
    known = (ids >= 0) & predictable[ids]
    return Labels(
        ids=ids,
        previous=tokens[:, :-1],
        known=known.cumprod(dim=1).bool(),
        rows=anchor_rows[:, None] + torch.arange(ids.shape[1]),
    )

"""What of a target takes part in the training of its drafter, and never changes."""

from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from dflash.models.checkpoint import Checkpoint
from dflash.train.head import DraftHead, draft_head
from dflash.train.teacher import Teacher, teacher_of


@dataclass(frozen=True, slots=True)
class FrozenTarget:
    """A target's part in the training, in the type to compute in.

    Attributes:
        fingerprint: Of its checkpoint.
        embedding: Its embedding table, ``[vocab, hidden]``.
        head: Its head over the shortlist.
        teacher: Its layers after the last tapped one; None trains on labels alone.
    """

    fingerprint: str
    embedding: Tensor
    head: DraftHead
    teacher: Teacher | None

    @property
    def device(self) -> torch.device:
        """Where it computes; the drafter and the batches are there too."""
        return self.embedding.device

    def taught(self, features: Tensor, lengths: tuple[int, ...]) -> Tensor | None:
        """Return what the head reads at each token, ``[tokens, hidden]``; None without teacher.

        Args:
            features: Tapped layers side by side, the deepest last, ``[tokens, taps * hidden]``.
            lengths: Tokens of each sequence.
        """
        if self.teacher is None:
            return None
        return self.teacher.states(features[:, -self.embedding.shape[1] :], lengths)


def frozen_target(
    checkpoint: Checkpoint,
    shortlist: Tensor,
    last_tap: int | None,
    dtype: torch.dtype,
    device: torch.device,
) -> FrozenTarget:
    """Return a target's part in the training.

    Args:
        checkpoint: The target.
        shortlist: Ids that may be predicted, ascending, ``[draft_vocab]`` int64.
        last_tap: The deepest tapped layer; None trains without a teacher.
        dtype: Type to compute in.
        device: Where to compute.
    """

    def weight(name: str) -> Tensor:
        return checkpoint.tensor(name).to(device, dtype)

    embedding = weight("model.embed_tokens.weight")
    head = embedding if checkpoint.config.tie_word_embeddings else weight("lm_head.weight")
    return FrozenTarget(
        fingerprint=checkpoint.fingerprint,
        embedding=embedding,
        head=draft_head(head, shortlist),
        teacher=None if last_tap is None else teacher_of(checkpoint.config, weight, last_tap),
    )


def indispensable_ids(checkpoint: Checkpoint) -> Tensor:
    """Return special ids and single bytes, which no shortlist may miss, ``[ids]`` int64."""
    tokenizer = Tokenizer.from_file(str(checkpoint.folder / "tokenizer.json"))
    special = set(tokenizer.get_added_tokens_decoder()) | set(checkpoint.config.eos_token_ids)
    single = {number for token, number in tokenizer.get_vocab().items() if len(token) == 1}
    return torch.tensor(sorted(special | single))

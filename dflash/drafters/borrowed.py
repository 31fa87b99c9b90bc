"""What a drafter borrows from its target: the embedding table and the head, whole or in part."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dflash.drafters.checkpoint import EMBEDDING, HEAD, DrafterCheckpoint
from dflash.drafters.config import DFlashConfig
from dflash.drafters.dflash_program import OWN, BorrowedNames
from dflash.errors import CheckpointError
from dflash.program import Embed, Linear, Program

# What is the target's only after a change gets a name of the drafter's own.
SCALED_EMBEDDING = f"{OWN}embedding"
REDUCED_HEAD = f"{OWN}head"


def borrowed_names(config: DFlashConfig, target: Program) -> BorrowedNames:
    """Return under which names a drafter's program reaches what it borrows.

    Args:
        config: The drafter's.
        target: The target's forward.
    """
    whole = _whole(target)
    return BorrowedNames(
        embedding=whole.embedding if config.input_embedding_scale == 1.0 else SCALED_EMBEDDING,
        head=REDUCED_HEAD if config.is_reduced else whole.head,
    )


def _whole(target: Program) -> BorrowedNames:
    embedding = next(each.weight for each in target.operations if isinstance(each, Embed))
    head = next(
        each.weights[0]
        for each in target.operations
        if isinstance(each, Linear) and each.dst == target.logits
    )
    return BorrowedNames(embedding, head)


@dataclass(frozen=True, slots=True)
class DrafterWeights:
    """Every tensor that a drafter's programs name, its own and its target's.

    Attributes:
        checkpoint: The drafter's.
        target: The target's forward.
        target_weight: Returns a tensor of the target by its name.
        target_ids: Target id of each column of the head; None where a column is its id.
    """

    checkpoint: DrafterCheckpoint
    target: Program
    target_weight: Callable[[str], Tensor]
    target_ids: Tensor | None

    def __call__(self, name: str) -> Tensor:
        """Return a tensor by the name that a program gives it."""
        whole = _whole(self.target)
        if name == SCALED_EMBEDDING:
            scale = self.checkpoint.config.input_embedding_scale
            return self.target_weight(whole.embedding) * scale
        if name == REDUCED_HEAD:
            return self.target_weight(whole.head)[self.target_ids]
        if name.startswith(OWN):
            return self.checkpoint.tensor(name.removeprefix(OWN))
        return self.target_weight(name)

    def check_copies(self) -> None:
        """Make sure that copies of the target's tensors in the drafter's file are just that.

        Raises:
            CheckpointError: One of them was trained on, or is another target's.
        """
        whole = _whole(self.target)
        for stored, name, rows in (
            (EMBEDDING, whole.embedding, None),
            (HEAD, whole.head, self.target_ids),
        ):
            if stored not in self.checkpoint.stored_names:
                continue
            copy, own = self.checkpoint.tensor(stored), self.target_weight(name)
            own = own if rows is None else own[rows]
            if not torch.equal(copy, own.to(copy.dtype)):
                raise CheckpointError(
                    f"{self.checkpoint.folder}: {stored} differs from the target's {name}; this "
                    "engine drafts with the target's own; use a drafter that does"
                )

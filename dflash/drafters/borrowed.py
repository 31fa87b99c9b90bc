"""What a drafter borrows from its target: the embedding table and the head, whole or in part."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash.drafters.checkpoint import EMBEDDING, HEAD, DrafterCheckpoint, DrafterConfig
from dflash.drafters.config import DFlashConfig
from dflash.drafters.mtp_config import MtpConfig
from dflash.drafters.names import OWN, BorrowedNames
from dflash.errors import CheckpointError
from dflash.program import Embed, Linear, Program, RmsNorm

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# What is the target's only after a change gets a name of the drafter's own.
SCALED_EMBEDDING = f"{OWN}embedding"
REDUCED_HEAD = f"{OWN}head"


def borrowed_names(config: DrafterConfig, target: Program) -> BorrowedNames:
    """Return under which names a drafter's program reaches what it borrows.

    Args:
        config: The drafter's.
        target: The target's forward.
    """
    whole = _whole(target)
    is_scaled = isinstance(config, DFlashConfig) and config.input_embedding_scale != 1.0
    return BorrowedNames(
        embedding=SCALED_EMBEDDING if is_scaled else whole.embedding,
        head=REDUCED_HEAD if config.is_reduced else whole.head,
    )


def final_norm(target: Program) -> RmsNorm:
    """Return the norm of what the target's head reads."""
    head = _head(target)
    return next(
        each for each in target.operations if isinstance(each, RmsNorm) and each.dst == head.src
    )


def embedding_table(target: Program) -> str:
    """Return the target's name of its embedding table."""
    return next(each.weight for each in target.operations if isinstance(each, Embed))


def _whole(target: Program) -> BorrowedNames:
    return BorrowedNames(embedding_table(target), _head(target).weights[0])


def _head(target: Program) -> Linear:
    return next(
        each for each in target.operations if isinstance(each, Linear) and each.dst == target.logits
    )


@dataclass(frozen=True, slots=True)
class DrafterWeights:
    """Every tensor that a drafter's programs name, its own and its target's.

    Attributes:
        checkpoint: The drafter's.
        target: The target's forward.
        target_weight: Returns a tensor of the target by its name.
        target_ids: Target id of each column of the head; None where a column is its id.
        dtype: Type they are served in.
    """

    checkpoint: DrafterCheckpoint
    target: Program
    target_weight: Callable[[str], "Tensor"]
    target_ids: "Tensor | None"
    dtype: "torch.dtype"

    def __call__(self, name: str) -> "Tensor":
        """Return a tensor by the name that a program gives it.

        Raises:
            CheckpointError: A weight is not finite, or not in the type it is served in.
        """
        import torch

        tensor = self._made(name)
        # Rounding keeps order, so that the ends of a range tell of all between them.
        if name.startswith(OWN) and not all(
            end.to(self.dtype).isfinite() for end in torch.aminmax(tensor)
        ):
            raise CheckpointError(
                f"{self.checkpoint.folder}: {name.removeprefix(OWN)} holds weights that are "
                f"infinite in {self.dtype}; use another checkpoint, or set engine.dtype to float32"
            )
        return tensor

    def _made(self, name: str) -> "Tensor":
        config, whole = self.checkpoint.config, _whole(self.target)
        if name == SCALED_EMBEDDING and isinstance(config, DFlashConfig):
            return self.target_weight(whole.embedding) * config.input_embedding_scale
        if name == REDUCED_HEAD:
            return self.target_weight(whole.head)[self.target_ids]
        if not name.startswith(OWN):
            return self.target_weight(name)
        tensor = self.checkpoint.tensor(name.removeprefix(OWN))
        is_offset = isinstance(config, MtpConfig) and config.has_offset_norms and tensor.ndim == 1
        return tensor.float() + 1.0 if is_offset else tensor

    def check_copies(self) -> None:
        """Make sure that copies of the target's tensors in the drafter's file are just that.

        Raises:
            CheckpointError: One of them was trained on, or is another target's.
        """
        import torch

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

"""Names in the programs of every kind of drafter: its own weights, its logits, what it borrows."""

from dataclasses import dataclass

OWN = "drafter."  # what the names of a drafter's own weights begin with
LOGITS = "logits"


@dataclass(frozen=True, slots=True)
class BorrowedNames:
    """Under which names a drafter reaches what it borrows from its target.

    The target's own names where the tensors are the target's, so that executors share them.

    Attributes:
        embedding: The embedding table.
        head: The matrix of the logits.
    """

    embedding: str
    head: str

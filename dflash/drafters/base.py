"""What the engine needs of a drafter: its facts, drafts for rows, and a context that follows."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class DrafterKind(StrEnum):
    """Names of the drafters there are; one with a name has its pair of fixtures, by a test."""

    DFLASH = "dflash"
    DFLASH2 = "dflash2"
    MTP = "mtp"


@dataclass(frozen=True, slots=True)
class DrafterFacts:
    """Facts of a loaded drafter.

    Attributes:
        name: What plans, logs and statistics call it: its `DrafterKind`.
        taps: Target layers whose outputs it reads, in the order of their concatenation.
        max_draft_length: Most draft tokens of one pass: its block without the anchor.
        max_context: Longest context it was trained for, in tokens; a sequence that has more goes
            on in plain decoding.
        drafts_whole_block: Whether a pass computes its whole block however few tokens are asked
            for, so that the others cost next to nothing.
    """

    name: str
    taps: tuple[int, ...]
    max_draft_length: int
    max_context: int
    drafts_whole_block: bool


@dataclass(frozen=True, slots=True)
class DraftRow:
    """One sequence that asks for drafts.

    Attributes:
        anchor: Its newest token: chosen, not yet computed by the target.
        position: Position of the anchor, which is the number of tokens in the context.
        page_table: Its pages in order; the first ``position`` tokens have context in them.
        num_drafts: Draft tokens wanted, 1 to ``max_draft_length``.
        temperature: The request's; 0 is greedy.
        seed: 64-bit seed of the request.
        choice: Index among the request's ``n`` choices.
    """

    anchor: int
    position: int
    page_table: Sequence[int]
    num_drafts: int
    temperature: float
    seed: int
    choice: int


@dataclass(frozen=True, slots=True)
class ContextRows:
    """Target features of committed tokens of one sequence, at consecutive positions.

    Attributes:
        start: Position of the first; the context holds exactly the positions before it.
        page_table: Pages of the sequence, enough for all these tokens.
        rows: Rows of the step's features that belong to them, in order.
    """

    start: int
    page_table: Sequence[int]
    rows: range


class Drafter(Protocol):
    """A drafter with its context pages, owned by the engine's thread.

    Its context lies in pages of its own under the numbers of the target's: whoever shares a
    target page shares its context. It holds committed tokens only.
    """

    @property
    def facts(self) -> DrafterFacts:
        """The facts that scheduling needs."""
        ...

    def propose(self, rows: Sequence[DraftRow]) -> list[tuple[int, ...]]:
        """Return up to ``num_drafts`` token ids for each row, in order; the context stays as it is.

        Every id lies in the target's vocabulary. A row for which nothing finite came out gets
        none.
        """
        ...

    def release_context(self) -> None:
        """Give the memory of the context's pages back; nothing is left in them."""
        ...

    def observe(self, features: "Tensor", commits: Sequence[ContextRows]) -> None:
        """Extend the context by committed tokens.

        Shapes:
            features: ``[num_tokens, len(taps) * hidden]``, the step's tapped rows side by side in
                the order of ``taps``.
        """
        ...

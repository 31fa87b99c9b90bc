"""From a draft block's logits to draft tokens: candidates of each slot, chosen left to right."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from dflash.drafters.base import DraftRow


@dataclass(frozen=True, slots=True)
class Selector:
    """What a pair of neighbouring tokens adds to a candidate's score, as tables by target id.

    Shapes:
        predecessors, successors: ``[vocab, rank]``, float32 or bfloat16, contiguous.
    """

    predecessors: Tensor
    successors: Tensor


@dataclass(frozen=True, slots=True)
class Scoring:
    """How a drafter's logits become scores; fixed by its checkpoint.

    Attributes:
        num_candidates: Candidates of a slot, 1 to 16: its largest logits.
        multiplier: Logits are multiplied by it, in float32.
        softcap: Then ``softcap * tanh(logit / softcap)``, computed in float64 as
            ``sign * softcap * (1 - e) / (1 + e)`` with ``e = exponential(-2 * |logit / softcap|)``
            and rounded once; None leaves them.
        target_ids: ``[columns]`` int64, strictly ascending: the target id of each column of a
            reduced head; None where a column is its id.
        selector: None for DFlash v1, which scores each slot alone.
    """

    num_candidates: int
    multiplier: float
    softcap: float | None
    target_ids: Tensor | None
    selector: Selector | None


@dataclass(frozen=True, slots=True)
class WalkInput:
    """The slots to draft of some rows.

    Shapes:
        logits: ``[slots, columns]`` float32, as the head left them. The slots of a row lie
            together and in order, ``rows[r].num_drafts`` of them, the anchor's left out.
        states: ``[slots, rank]`` float32, the selector's view of each slot; None without one.

    Attributes:
        rows: Whose they are, in order.
        scoring: The drafter's.
    """

    logits: Tensor
    states: Tensor | None
    rows: Sequence[DraftRow]
    scoring: Scoring


class Walk(Protocol):
    """One form of the walk; all forms choose the same ids."""

    def __call__(self, request: WalkInput, /) -> list[tuple[int, ...]]:
        """Return the draft tokens of each row, as target ids.

        Slot t's candidates are the ``num_candidates`` largest finite logits, ties to the lower
        id. Their scores, in float32: ``U(b) + sum over j of (P[a, j] * state[t, j]) * N[b, j]``,
        where U is the logit after multiplier and softcap, a the token before (the anchor, then
        what was chosen), every product and sum rounded by itself and summed in the order of j
        from 0; U is added last. Without a selector the score is U. At temperature T > 0 a
        candidate's rank is ``score / T + gumbel_noise((seed, choice, position + t), id)`` in
        float64, at 0 its score; the first slot after the anchor is t = 1. The largest is chosen,
        ties to the lower id. A candidate whose score is not finite is none; a slot without
        candidates ends its row's draft before it.
        """
        ...

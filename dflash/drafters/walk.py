"""From a draft block's logits to draft tokens: candidates of each slot, chosen left to right."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dflash.drafters.base import DraftRow
from dflash.noise import NoiseKey, gumbel_noise
from dflash.portable_math import exponential

Ids = NDArray[np.int64]
Scores = NDArray[np.float32]


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
        from 0; U is added last. Without a selector the score is U. A candidate whose score is not
        finite is none; a slot without candidates ends its row's draft before it. At temperature
        T > 0 a candidate's rank is
        ``(score - largest score) / T + gumbel_noise((seed, choice, position + t), id)`` in
        float64, at 0 its score; the first slot after the anchor is t = 1. The largest is chosen,
        ties to the lower id.
        """
        ...


def walk_reference(request: WalkInput) -> list[tuple[int, ...]]:
    """Return the draft tokens of each row: the form in numpy, which others are tested against."""
    drafts, first = [], 0
    for row in request.rows:
        drafts.append(_walked(request, row, first))
        first += row.num_drafts
    return drafts


def _walked(request: WalkInput, row: DraftRow, first: int) -> tuple[int, ...]:
    chosen: list[int] = []
    for slot in range(first, first + row.num_drafts):
        ids, scores = _unary(request.logits[slot].numpy(), request.scoring)
        selector = request.scoring.selector
        if selector is not None and request.states is not None:
            previous = chosen[-1] if chosen else row.anchor
            with np.errstate(over="ignore", invalid="ignore"):
                scores = scores + _pair_scores(selector, request.states[slot], previous, ids)
        is_finite = np.isfinite(scores)
        ids, scores = ids[is_finite], scores[is_finite]
        if not ids.size:
            break
        chosen.append(_best(ids, scores, row, row.position + len(chosen) + 1))
    return tuple(chosen)


def _unary(logits: Scores, scoring: Scoring) -> tuple[Ids, Scores]:
    """Return a slot's candidates, ascending, and what each scores by itself."""
    finite = np.where(np.isfinite(logits), logits, -np.inf)
    least = np.partition(finite, -scoring.num_candidates)[-scoring.num_candidates]
    columns = np.flatnonzero((finite >= least) & (finite > -np.inf))
    order = np.argsort(-finite[columns], kind="stable")
    columns = np.sort(columns[order[: scoring.num_candidates]])
    with np.errstate(over="ignore"):
        scores = logits[columns] * np.float32(scoring.multiplier)
    if scoring.softcap is not None:
        scores = _softcapped(scores, scoring.softcap)
    ids = columns if scoring.target_ids is None else scoring.target_ids.numpy()[columns]
    return ids, scores


def _softcapped(scores: Scores, softcap: float) -> Scores:
    wide = scores.astype(np.float64)
    e = exponential(-2.0 * np.abs(wide / softcap))
    return (np.sign(wide) * softcap * (1.0 - e) / (1.0 + e)).astype(np.float32)


def _pair_scores(selector: Selector, state: Tensor, previous: int, ids: Ids) -> Scores:
    """Return what following the token ``previous`` adds to each candidate."""
    gate = selector.predecessors[previous].float().numpy() * state.numpy()
    products = gate * selector.successors[ids].float().numpy()
    # A running sum adds in order; numpy's own sum adds in pairs.
    return np.cumsum(products, axis=1, dtype=np.float32)[:, -1]


def _best(ids: Ids, scores: Scores, row: DraftRow, position: int) -> int:
    if row.temperature == 0.0:
        return int(ids[np.argmax(scores)])
    wide = scores.astype(np.float64)
    with np.errstate(over="ignore"):
        behind = (wide - wide.max()) / row.temperature
    noise = gumbel_noise(NoiseKey(row.seed, row.choice, position), ids)
    return int(ids[np.argmax(behind + noise)])

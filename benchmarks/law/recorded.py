"""A drafter's own law at each slot it drafted, taken down while it walks."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dflash.drafters.walk import Scoring, Walk, WalkInput

# Seed and choice of a request, and the position of a draft token.
Place = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class DraftLaw:
    """What the drafter could have drafted at one place, given its own drafts before.

    Shapes:
        candidates: ``[candidates]`` int64, target ids.
        law: ``[candidates]`` float64, sums to 1.
    """

    candidates: NDArray[np.int64]
    law: NDArray[np.float64]


class RecordedWalk:
    """A `Walk` that leaves behind the laws of the slots of sampled rows.

    Attributes:
        laws: By place; a place drafted again overwrites what was there.
    """

    def __init__(self, walk: Walk) -> None:
        self.laws: dict[Place, DraftLaw] = {}
        self._walk = walk

    def __call__(self, request: WalkInput) -> list[tuple[int, ...]]:
        """Walk, and take the laws down."""
        first = 0
        drafts = self._walk(request)
        for row, chosen in zip(request.rows, drafts, strict=True):
            before = row.anchor
            for offset, token_id in enumerate(chosen if row.temperature > 0.0 else ()):
                ids, scores = _scores(request, first + offset, before)
                shares = np.exp((scores - scores.max()) / row.temperature)
                place = (row.seed, row.choice, row.position + 1 + offset)
                self.laws[place] = DraftLaw(ids, shares / shares.sum())
                before = token_id
            first += row.num_drafts
        return drafts


def _scores(
    request: WalkInput, slot: int, before: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return a slot's candidates and their scores after the token ``before``."""
    scoring = request.scoring
    logits = request.logits[slot].numpy()
    columns = np.argsort(-logits, kind="stable")[: scoring.num_candidates]
    columns = columns[np.isfinite(logits[columns])]
    ids = columns if scoring.target_ids is None else scoring.target_ids.numpy()[columns]
    scores = _own_scores(logits[columns].astype(np.float64), scoring)
    if scoring.selector is not None and request.states is not None:
        view = scoring.selector.predecessors[before].float() * request.states[slot]
        scores += (scoring.selector.successors[ids].float() @ view).numpy()
    return ids, scores


def _own_scores(logits: NDArray[np.float64], scoring: Scoring) -> NDArray[np.float64]:
    scores = logits * scoring.multiplier
    return (
        scores if scoring.softcap is None else scoring.softcap * np.tanh(scores / scoring.softcap)
    )

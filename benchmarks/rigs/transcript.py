"""What was computed for each request: a digest of the logits of every position that chose an id."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from dflash.schedule import Verdict

# A request's key and the position whose logits these are.
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Row:
    """Logits of one position.

    Attributes:
        digest: Of the bytes; equal digests stand for equal logits.
        best_id: The lowest id with the largest logit.
    """

    digest: bytes
    best_id: int


@dataclass(slots=True)
class Transcript:
    """Rows and emitted ids of one arm, filled while it runs.

    Attributes:
        rows: By place. A position computed twice must come out alike; `num_unlike` counts others.
        emitted: Ids of each request, in order.
        num_unlike: Positions computed again with other bits.
    """

    rows: dict[Place, Row] = field(default_factory=dict)
    emitted: dict[str, list[int]] = field(default_factory=dict)
    num_unlike: int = 0

    def audit(self, verdicts: Sequence[Verdict], logits: Tensor) -> None:
        """Take down the logits of a step's committed positions, as the engine's audit."""
        rows = logits.numpy()
        first = 0
        for verdict in verdicts:
            run = verdict.turn.run
            key = verdict.turn.sequence.request.request_id
            position = run.start + len(run.token_ids) - run.num_logits
            # Rows after a rejected draft token belong to no position of the sequence.
            for index in range(len(verdict.chosen)):
                self.add((key, position + index), rows[first + index])
            first += run.num_logits

    def add(self, place: Place, logits: np.ndarray) -> None:
        """Take down one row.

        Shapes:
            logits: ``[vocab]`` float32.
        """
        row = Row(hashlib.blake2b(logits.tobytes(), digest_size=16).digest(), int(logits.argmax()))
        if self.rows.setdefault(place, row) != row:
            self.num_unlike += 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """One arm against each request alone.

    Attributes:
        positions_compared: Positions that both computed.
        logits_differ: Of those, the ones whose bytes differ, repeats within the arm included.
        ids_differ: Requests whose ids differ.
        ids_not_argmax: Ids of greedy requests that are not the argmax of their own logits.
    """

    positions_compared: int
    logits_differ: int
    ids_differ: int
    ids_not_argmax: int


def compared(alone: Transcript, arm: Transcript, greedy: frozenset[str]) -> Comparison:
    """Return how an arm compares with the requests alone.

    Args:
        alone: Every request by itself.
        arm: The same requests served otherwise.
        greedy: Keys of the requests whose ids must be their argmax.
    """
    shared = alone.rows.keys() & arm.rows.keys()
    return Comparison(
        positions_compared=len(shared),
        logits_differ=arm.num_unlike
        + sum(alone.rows[place].digest != arm.rows[place].digest for place in shared),
        ids_differ=sum(arm.emitted[key] != ids for key, ids in alone.emitted.items()),
        ids_not_argmax=_not_argmax(arm, greedy),
    )


def _not_argmax(arm: Transcript, greedy: frozenset[str]) -> int:
    """Count ids that their own row did not choose; rows end where the ids do."""
    count = 0
    for key in greedy:
        places = sorted(place for place in arm.rows if place[0] == key)
        chosen = [arm.rows[place].best_id for place in places]
        # One row more than ids: the one that chose an end-of-sequence id, which is not emitted.
        count += sum(a != b for a, b in zip(chosen, arm.emitted[key], strict=False))
    return count

"""What an interleaved run measured, and the ratios that are fair to form from it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

OURS_AGAIN = "ours, again"


@dataclass(frozen=True, slots=True)
class Load:
    """One concurrency and how much of it is measured.

    Attributes:
        concurrency: Requests in flight.
        num_requests: Served in one visit.
        new_tokens: Emitted for each.
    """

    concurrency: int
    num_requests: int
    new_tokens: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One visit to one engine.

    Attributes:
        round_index: Which round.
        arm: Which engine; `OURS_AGAIN` is the second visit to ours.
        concurrency: Requests in flight.
        tok_s: Output throughput.
        step_s: Median time between two tokens of a request, where the engine shows it.
        weight_read_s: One pass over the weights, measured right after; at one request only.
        shared_tokens: Mean number of leading tokens that ours emitted too, this round.
    """

    round_index: int
    arm: str
    concurrency: int
    tok_s: float
    step_s: float | None = None
    weight_read_s: float | None = None
    shared_tokens: float | None = None


def shared_prefix(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> float:
    """Return the mean number of leading tokens on which two sets of outputs agree.

    It is low where one side got another prompt or other weights; rounding alone parts greedy
    outputs after some tens of tokens.
    """
    lengths = [
        next(
            (i for i, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b),
            min(len(mine), len(other)),
        )
        for mine, other in zip(ours, theirs, strict=True)
    ]
    return sum(lengths) / len(lengths)


class Samples:
    """All samples of a run."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.all = tuple(samples)

    def tok_s(self, arm: str, concurrency: int) -> list[float]:
        """Return the arm's output throughput, one value a round."""
        return [sample.tok_s for sample in self._of(arm, concurrency)]

    def ours_over(self, arm: str, concurrency: int) -> list[float]:
        """Return ours over the arm, one ratio a round.

        Ours is the mean of its two visits, which lie on both sides of the arm's: a machine that
        slows down during the round slows both terms.
        """
        theirs = {sample.round_index: sample for sample in self._of(arm, concurrency)}
        return [
            ours / theirs[index].tok_s for index, ours in self._ours(concurrency) if index in theirs
        ]

    def again_over_first(self, concurrency: int) -> list[float]:
        """Return the second visit to ours over the first: what equal engines differ by."""
        first = self._of("ours", concurrency)
        again = self._of(OURS_AGAIN, concurrency)
        return [b.tok_s / a.tok_s for a, b in zip(first, again, strict=True)]

    def step_over_weight_read(self) -> list[float]:
        """Return our decode step at one request over one pass over the weights, each visit."""
        return [
            sample.step_s / sample.weight_read_s
            for sample in self.all
            if sample.step_s is not None and sample.weight_read_s is not None
        ]

    def _of(self, arm: str, concurrency: int) -> list[Sample]:
        return [s for s in self.all if s.arm == arm and s.concurrency == concurrency]

    def _ours(self, concurrency: int) -> Iterator[tuple[int, float]]:
        first = self._of("ours", concurrency)
        again = self._of(OURS_AGAIN, concurrency)
        for a, b in zip(first, again, strict=True):
            yield a.round_index, (a.tok_s + b.tok_s) / 2

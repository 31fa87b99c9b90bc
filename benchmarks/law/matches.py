"""Drafts that were kept or not, beside the chances that three rules would have given them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from benchmarks.law.laws import law_of
from benchmarks.law.rates import Rates, mean_of, rates_at
from benchmarks.law.recorded import Place, RecordedWalk
from dflash.schedule import Turn, Verdict


@dataclass(frozen=True, slots=True)
class Match:
    """One draft token that the target judged.

    Attributes:
        temperature: Of the request.
        is_match: Whether it was what the target chose.
        rates: The chances, over all noise, that it would have been kept.
    """

    temperature: float
    is_match: bool
    rates: Rates


@dataclass(frozen=True, slots=True)
class MatchRate:
    """Draft tokens of one kind.

    Attributes:
        num_rows: How many.
        seen: Share that were kept.
        expected: Mean chances.
        spread: How far ``seen`` may lie from ``expected.shared_noise`` by chance: one standard
            deviation.
    """

    num_rows: int
    seen: float
    expected: Rates
    spread: float


def match_rate(matches: Sequence[Match]) -> MatchRate:
    """Return what became of these, at least one."""
    expected = [match.rates for match in matches]
    variance = sum(each.shared_noise * (1.0 - each.shared_noise) for each in expected)
    return MatchRate(
        num_rows=len(matches),
        seen=sum(match.is_match for match in matches) / len(matches),
        expected=mean_of(expected),
        spread=variance**0.5 / len(matches),
    )


@dataclass(slots=True)
class MatchAudit:
    """Takes down every draft token that sampled requests had judged, as an engine's audit.

    Only those count whose predecessors were all kept: what follows a wrong one is no draft of the
    sequence that is emitted.

    Attributes:
        walk: The drafter's walk, with the laws it left behind.
        matches: What was seen.
    """

    walk: RecordedWalk
    matches: list[Match] = field(default_factory=list)

    def __call__(self, verdicts: Sequence[Verdict], logits: Tensor) -> None:
        """Take down a step's draft tokens."""
        first = 0
        for verdict in verdicts:
            turn = verdict.turn
            if turn.num_drafts and turn.sequence.request.sampling.temperature > 0.0:
                own = logits[first : first + turn.run.num_logits]
                self.matches.extend(self._matches(turn, verdict, own))
            first += turn.run.num_logits

    def _matches(self, turn: Turn, verdict: Verdict, logits: Tensor) -> Iterator[Match]:
        request = turn.sequence.request
        for index, (draft, choice) in enumerate(zip(turn.drafts, verdict.chosen, strict=False)):
            row = turn.sequence.choice_row(turn.drafts[:index])
            place: Place = (request.seed, request.choice, row.position)
            drafted = self.walk.laws[place]
            yield Match(
                temperature=request.sampling.temperature,
                is_match=draft == choice.token_id,
                rates=rates_at(law_of(logits[index], row), drafted.candidates, drafted.law),
            )

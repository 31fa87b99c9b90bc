"""What a replica's policy does now and did lately, told to whoever checks in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deployments.decision_record import DecisionRecord, Made
from deployments.operators.orders import StandingPin
from deployments.operators.report import Acceptance, DeskReport
from policy.arms import PLAIN_ARM, Arm, Ladder, Rungs
from policy.decision import Decision, Realised
from policy.limits import Limits
from policy.log import described
from policy.survival import Survival

# More than this many at once wait for the next check-in: a message has its limits.
_MOST_CHANGES = 200


@dataclass(frozen=True, slots=True)
class _Lasting:
    """What outlives single decisions. Replaced whole, by the thread that decides."""

    home: Arm
    since_s: float
    realised: Realised | None = None
    realised_at_s: float = 0.0


class DeskReporter:
    """Notes every decision, from the thread that makes them, and reports from any other."""

    def __init__(self, record: DecisionRecord, ladder: Ladder, clock: Callable[[], float]) -> None:
        """Begin with plain decoding.

        Args:
            record: Keeps the decisions.
            ladder: The drafters.
            clock: The clock of the decisions, seconds.
        """
        self._record, self._ladder, self._clock = record, ladder, clock
        self._lasting = _Lasting(PLAIN_ARM, clock())

    def note(self, made: Made) -> None:
        """Keep a decision; raises nothing."""
        self._record.note(made)
        decision, lasting = made.decision, self._lasting
        home = decision.state.home_of(decision.plan.arm)
        since_s = lasting.since_s if home == lasting.home else decision.at_s
        realised, at_s = lasting.realised, lasting.realised_at_s
        if decision.realised is not None:
            realised, at_s = decision.realised, decision.at_s
        self._lasting = _Lasting(home, since_s, realised, at_s)

    def report(self, known: int, pin: StandingPin | None, limits: Limits) -> DeskReport:
        """Return what the policy does, and what it changed since.

        Args:
            known: Number of the newest change that the asker has.
            pin: What is ordered now.
            limits: The operator's bounds.
        """
        record, lasting, now_s = self._record, self._lasting, self._clock()
        made, offset_s = record.newest, record.clock_offset_s
        return DeskReport(
            home=lasting.home.name,
            since_s=now_s - lasting.since_s,
            newest=None if made is None else described(made.last, made.decision, made.signals),
            num_repeats=record.num_repeats,
            expected_gain=None if made is None else _expected(lasting.home, made.decision),
            realised=lasting.realised,
            realised_age_s=now_s - lasting.realised_at_s if lasting.realised else 0.0,
            acceptances=self._acceptances({} if made is None else made.decision.state.survivals),
            pin=pin,
            floor_fraction=limits.memory.red_free_fraction,
            clock_offset_s=offset_s,
            decisions=record.changes_after(known)[:_MOST_CHANGES],
        )

    def _acceptances(self, survivals: Mapping[str, Survival]) -> tuple[Acceptance, ...]:
        return tuple(
            _acceptance(rungs, survivals.get(rungs.drafter, Survival()))
            for rungs in self._ladder.drafters
        )


def _expected(home: Arm, decision: Decision) -> float | None:
    """Return what an arm is believed to be worth over plain decoding; None if nothing is."""
    return next((worth.value for worth in decision.scores if worth.arm == home), None)


def _acceptance(rungs: Rungs, survival: Survival) -> Acceptance:
    shares: list[float] = []
    share = 1.0
    for graded, accepted in zip(survival.graded, survival.accepted, strict=True):
        if graded < 1.0:
            break
        share *= accepted / graded
        shares.append(share)
    _, num_graded = survival.first_chance()
    return Acceptance(rungs.drafter, rungs.draft_lengths, num_graded, tuple(shares))

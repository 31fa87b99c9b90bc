"""All that a decision remembers, so that the next one needs nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from policy.arms import PLAIN, PLAIN_ARM, Arm
from policy.breaker import Breaker
from policy.budget import Purse
from policy.correction import Corrections
from policy.governor import Governor
from policy.limits import Limits
from policy.probe import Pace, Probe, ProbeClock
from policy.survival import Survival
from policy.terms import Terms

# Time that probes may lose at once, seconds; it fills by ``exploration_share`` of busy time.
_LEDGER_S = 0.4


@dataclass(frozen=True, slots=True)
class Standby:
    """A drafter that does not draft but whose context is kept up to date.

    Attributes:
        drafter: Its name; None where no context is kept.
        paid_s: Time that keeping it has taken since it last drafted, seconds.
    """

    drafter: str | None = None
    paid_s: float = 0.0


@dataclass(frozen=True, slots=True)
class State:
    """What was learnt and what has been spent.

    Attributes:
        survivals: Draft tokens graded, by drafter.
        corrections: Live step times against the table.
        governor: What memory allows.
        breakers: Health, by drafter.
        clocks: When each drafter, or plain, is probed next.
        probe: The trial that runs.
        ledger: Time that probes may still lose, seconds.
        switches: Changes to a drafter with longer steps that are still free.
        barred: Drafters over their concurrency limit.
        standby: A drafter kept warm.
        confirming: A drafter that has won once and has to win again.
        leaving: What the drafter in force takes over from, request by request; None where it has.
        changed_s: When the drafter last changed, seconds; None where it never did.
        ran: Drafter of the newest step.
        num_settled: Steps since that changed.
        pace: Tokens and time of what is in force.
        num_rows: Requests that decoded at the last decision.
    """

    survivals: Mapping[str, Survival] = field(default_factory=dict)
    corrections: Corrections = field(default_factory=Corrections)
    governor: Governor = field(default_factory=Governor)
    breakers: Mapping[str, Breaker] = field(default_factory=dict)
    clocks: Mapping[str, ProbeClock] = field(default_factory=dict)
    probe: Probe | None = None
    ledger: Purse = field(default_factory=lambda: Purse(_LEDGER_S, _LEDGER_S))
    switches: Purse = field(default_factory=lambda: Purse(1.0, 1.0))
    barred: tuple[str, ...] = ()
    standby: Standby = field(default_factory=Standby)
    confirming: str | None = None
    leaving: Arm | None = None
    changed_s: float | None = None
    ran: str = PLAIN
    num_settled: int = 0
    pace: Pace = field(default_factory=Pace)
    num_rows: int = 0

    def survival_of(self, drafter: str) -> Survival:
        """Return what is known of a drafter's drafts."""
        return self.survivals.get(drafter, _NOTHING_KNOWN)

    def breaker_of(self, drafter: str) -> Breaker:
        """Return a drafter's health."""
        return self.breakers.get(drafter, _HEALTHY)

    def home_of(self, arm: Arm) -> Arm:
        """Return what is in force beneath a trial."""
        return self.probe.home if self.probe else arm

    def is_dwelling(self, limits: Limits, now_s: float) -> bool:
        """Return whether the drafter changed too short a time ago to change again."""
        return self.changed_s is not None and now_s - self.changed_s < limits.dwell_s


_NOTHING_KNOWN = Survival()
_HEALTHY = Breaker()


def first_state(terms: Terms, now_s: float) -> State:
    """Return the state of a replica that has decoded nothing."""
    limits = terms.limits
    clocks = {
        name: ProbeClock(now_s, limits.probe_gap_s)
        for name in (*terms.ladder.names, PLAIN_ARM.drafter)
    }
    switches = Purse(limits.switches_per_minute, limits.switches_per_minute, now_s)
    return State(
        clocks=clocks,
        ledger=Purse(_LEDGER_S / 4, _LEDGER_S, now_s),
        switches=switches,
        governor=Governor(since_s=now_s),
    )

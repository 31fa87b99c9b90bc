"""A replica that obeys decisions: true step times and true chances, which the policy must find."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from policy.arms import PLAIN, Arm, Ladder, Rungs
from policy.controller import decide
from policy.cost import CostTable, rising_grid
from policy.decision import Decision, first_decision
from policy.limits import Limits
from policy.reasons import Reason
from policy.signals import Signals, StepSample
from policy.terms import Terms

ROWS = (1, 2, 4, 8, 16, 32, 64)
LADDER = Ladder((Rungs("dflash2", (1, 3, 5, 7)), Rungs("mtp", (1, 2, 3, 5))))

# What may change a drafter before the dwell is over.
FORCED = {
    Reason.CONCURRENCY_LIMIT,
    Reason.MEMORY_AMBER,
    Reason.MEMORY_RED,
    Reason.DRAFTER_UNHEALTHY,
    Reason.DRAFTER_UNAVAILABLE,
    Reason.OPTED_OUT,
    Reason.LOAD_SPIKE,
}


def step_s(arm: Arm, rows: int) -> float:
    """A device bound by weights up to 100 tokens a step, and by tokens beyond."""
    width = arm.draft_length
    drafting = {PLAIN: 0.0, "dflash2": 0.006, "mtp": 0.001 * width}[arm.drafter]
    return 0.014 + 0.0002 * rows + drafting + 0.0003 * max(0, rows * (width + 1) - 100)


def terms(limits: Limits | None = None, ladder: Ladder = LADDER) -> Terms:
    grids = {}
    for name, widths in ((PLAIN, (0,)), *((r.drafter, r.draft_lengths) for r in ladder.drafters)):
        medians = {
            (rows, width, 0): step_s(Arm(name, width), rows) for rows in ROWS for width in widths
        }
        grids[name] = rising_grid(ROWS, widths, (0,), medians)
    return Terms(ladder, CostTable(grids), limits or Limits())


@dataclass
class World:
    """Runs decisions. Every test may change what is true at any time.

    Attributes:
        chances: Chance that a draft token is right if those before it were, by drafter.
        slowness: What the step times of a drafter are multiplied with.
    """

    terms: Terms
    chances: dict[str, float]
    seed: int = 0
    slowness: dict[str, float] = field(default_factory=dict)
    noise: float = 0.02

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.now_s = 0.0
        self.decision = first_decision(self.terms, 0.0)
        self.signals: list[Signals] = []
        self.decisions: list[Decision] = []

    def run(self, seconds: float, rows: int, **signals) -> list[Decision]:
        """Decide every four steps for a while; return the decisions made."""
        start, end_s = len(self.decisions), self.now_s + seconds
        while self.now_s < end_s:
            steps = tuple(self._step(rows) for _ in range(4)) if rows else ()
            self.now_s += 0.0 if rows else 0.1
            self.decide(Signals(self.now_s, self.draw.random(), rows, steps=steps, **signals))
        return self.decisions[start:]

    def decide(self, signals: Signals) -> Decision:
        self.signals.append(signals)
        self.decision = decide(self.decision, signals, self.terms)
        self.decisions.append(self.decision)
        return self.decision

    def _step(self, rows: int) -> StepSample:
        plan = self.decision.plan
        arm, drafting = plan.arm, rows if plan.num_drafting is None else plan.num_drafting
        drafting = min(rows, drafting)
        graded, accepted = [0] * arm.draft_length, [0] * arm.draft_length
        for _ in range(drafting):
            for place in range(arm.draft_length):
                graded[place] += 1
                if self.draw.random() >= self.chances[arm.drafter]:
                    break
                accepted[place] += 1
        noise = self.draw.gauss(1.0, self.noise)
        time_s = (
            self.terms.costs.seconds(arm, rows, drafting * arm.draft_length / max(1, rows), 0)
            * self.slowness.get(arm.drafter, 1.0)
            * max(0.5, noise)
        )
        self.now_s += time_s
        return StepSample(
            arm,
            rows,
            drafting * arm.draft_length,
            num_emitted_tokens=rows + sum(accepted),
            step_time_s=time_s,
            graded=tuple(graded),
            accepted=tuple(accepted),
        )


def spiked(signals: Signals, index: int, factor: float) -> Signals:
    """Return signals in which one step took longer."""
    steps = list(signals.steps)
    steps[index] = replace(steps[index], step_time_s=steps[index].step_time_s * factor)
    return replace(signals, steps=tuple(steps))


def drafters_of(decisions: list[Decision]) -> list[str]:
    """Return what was in force beneath trials, decision by decision."""
    return [decision.state.home_of(decision.plan.arm).drafter for decision in decisions]


def shares(decisions: list[Decision]) -> Mapping[str, float]:
    """Return the share of decisions in which each drafter was in force."""
    names = drafters_of(decisions)
    return {name: names.count(name) / len(names) for name in set(names)}

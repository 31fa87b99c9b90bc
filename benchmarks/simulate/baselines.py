"""Controllers that could have been built instead, with the rules that others ship."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

from policy.arms import PLAIN_ARM, Arm, Ladder
from policy.controller import decide
from policy.decision import Plan, first_decision
from policy.learning import learned
from policy.signals import Signals, StepSample
from policy.simulate import Controller
from policy.state import first_state
from policy.terms import Terms
from policy.truth import Truth
from policy.view import View

# Loads at which tables are tuned.
_ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
_BUDGETS = (24, 48, 96, 128, 192, 256, 384)


class Law:
    """Ours, with what it sees of the world."""

    def __init__(self, terms: Terms, sight: Callable[[Signals], Signals] | None = None) -> None:
        self._terms, self._sight = terms, sight
        self._last = first_decision(terms, 0.0)

    @property
    def is_probing(self) -> bool:
        """Whether the newest plan is a trial."""
        return self._last.state.probe is not None

    def plan(self, signals: Signals) -> Plan:
        """Return the law's plan."""
        seen = signals if self._sight is None else self._sight(signals)
        self._last = decide(self._last, seen, self._terms)
        return self._last.plan


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same arm at every load."""

    arm: Arm

    def plan(self, signals: Signals) -> Plan:
        """Return the arm."""
        return Plan(self.arm)


@dataclass(frozen=True, slots=True)
class ByLoad:
    """An arm for each load, chosen before the first request."""

    arm_at: Callable[[int], Arm]

    def plan(self, signals: Signals) -> Plan:
        """Return the arm of the load."""
        return Plan(self.arm_at(max(1, signals.num_decoding)))


class EmaTiers:
    """A moving mean of accepted tokens moves the draft length along the tiers of its batch size.

    At draft length 0 the smallest other one is tried again at every update.
    """

    def __init__(self, drafter: str) -> None:
        self._drafter = drafter
        self._mean = 0.0
        self._length = 0

    def plan(self, signals: Signals) -> Plan:
        """Return the tier to run."""
        tiers = next(tiers for most, tiers in _TIERS if signals.num_decoding <= most)
        for step in signals.steps:
            self._observe(step)
        if self._length not in tiers:
            self._length = max((t for t in tiers if t < self._length), default=tiers[0])
        place = tiers.index(self._length)
        if place and self._mean <= tiers[place - 1] - 0.75:
            place -= 1
        elif place + 1 < len(tiers) and (self._length == 0 or self._mean > self._length - 0.5):
            place += 1
        self._length = tiers[place]
        return Plan(Arm(self._drafter, self._length) if self._length else PLAIN_ARM)

    def _observe(self, step: StepSample) -> None:
        if not step.arm.is_plain and step.num_decoding:
            kept = step.num_emitted_tokens / step.num_decoding - 1.0
            self._mean = 0.8 * self._mean + 0.2 * kept


_TIERS = ((7, (1, 3, 5, 7)), (31, (0, 1, 3)), (63, (0, 1)), (10**9, (0,)))


class Argmax:
    """The best mean at every decision: our estimates without guards, waits or probes."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._state = first_state(terms, 0.0)

    def plan(self, signals: Signals) -> Plan:
        """Return the arm with the best mean."""
        self._state = learned(self._state, signals, self._terms)
        view = View.of(PLAIN_ARM, self._state, signals, self._terms)
        return Plan(view.peaks()[0].arm, num_graded=1)


def tuned_table(truth: Truth) -> ByLoad:
    """Return a table by load made by someone who knows the step times and the mean chances."""
    best = {rows: _best_at(truth, rows) for rows in _ROWS}
    return ByLoad(lambda rows: best[min(_ROWS, key=lambda known: (abs(known - rows), known))])


def shared_budget(truth: Truth, drafter: str) -> ByLoad:
    """Return the rule that gives every request its part of a budget of tokens, fitted here."""
    lengths = truth.ladder.rungs_of(drafter).draft_lengths

    def rule(budget: int) -> Callable[[int], Arm]:
        def arm_at(rows: int) -> Arm:
            fitting = [length for length in lengths if length <= (budget - rows) / rows]
            return Arm(drafter, fitting[-1]) if fitting else PLAIN_ARM

        return arm_at

    return ByLoad(max(map(rule, _BUDGETS), key=lambda arm_at: _mean_worth(truth, arm_at)))


def every_fixed_arm(ladder: Ladder) -> Sequence[Arm]:
    """Return plain and every rung."""
    arms = [PLAIN_ARM]
    for rungs in ladder.drafters:
        arms += ladder.arms_of(rungs.drafter, rungs.draft_lengths[-1])
    return arms


def as_controllers(truth: Truth, terms: Terms) -> dict[str, Callable[[], Controller]]:
    """Return what is compared, by name; each call makes a new one."""
    widest = {
        rungs.drafter: Arm(rungs.drafter, rungs.draft_lengths[-1])
        for rungs in truth.ladder.drafters
    }
    return {
        "plain": lambda: Fixed(PLAIN_ARM),
        "law": lambda: Law(terms),
        **{f"{name}, full width": lambda arm=arm: Fixed(arm) for name, arm in widest.items()},
        "batch table": lambda: tuned_table(truth),
        "shared budget": lambda: shared_budget(truth, "dflash2"),
        "moving mean of accepted": lambda: EmaTiers("dflash2"),
        "best mean, no guards": lambda: Argmax(terms),
    }


def _best_at(truth: Truth, rows: int) -> Arm:
    return max(every_fixed_arm(truth.ladder), key=lambda arm: _worth(truth, arm, rows))


def _worth(truth: Truth, arm: Arm, rows: int) -> float:
    if arm.is_plain:
        return 1.0
    chance = mean(chances[arm.drafter] for chances in truth.chances.values())
    tokens = sum(chance**place for place in range(arm.draft_length + 1))
    plain_s = truth.costs.seconds(PLAIN_ARM, rows, 0, 0)
    return tokens * plain_s / truth.costs.seconds(arm, rows, arm.draft_length, 0)


def _mean_worth(truth: Truth, arm_at: Callable[[int], Arm]) -> float:
    return mean(_worth(truth, arm_at(rows), rows) for rows in _ROWS)

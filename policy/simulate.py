"""Discrete-event replay of a trace through a controller, over a cost model taken for the truth."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import log
from typing import Protocol

from policy.arms import PLAIN_ARM, Arm
from policy.decision import Plan, Residency
from policy.readings import MemoryReading
from policy.signals import DrafterCondition, Signals, StepSample
from policy.simulated_row import SimulatedRow
from policy.ticks import Finished, Tick
from policy.truth import Arrival, Truth

_STEPS_PER_DECISION = 4


class Controller(Protocol):
    """Anything that can be compared: a law, or a fixed arm."""

    def plan(self, signals: Signals) -> Plan:
        """Return how to decode until the next call."""
        ...


@dataclass(slots=True)
class _Sum:
    """What some steps came to, seconds without noise.

    Attributes:
        own_s: Their time.
        plain_s: That of plain decoding for what they emitted and prefilled.
        decode_s: Their time without prefill.
    """

    own_s: float = 0.0
    plain_s: float = 0.0
    decode_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Worth:
    """A step: the time in which plain decoding would do as much, and its own, seconds."""

    plain_s: float
    own_s: float

    def over(self, num_steps: int, extra_s: float) -> float:
        """Return what some of them are worth that take some time more."""
        return num_steps * self.plain_s / (num_steps * self.own_s + extra_s)


class Simulation:
    """One replica that lives through a trace."""

    def __init__(
        self, arrivals: Sequence[Arrival], truth: Truth, controller: Controller, seed: int = 0
    ) -> None:
        self._arrivals = sorted(arrivals, key=lambda arrival: arrival.at_s)
        self._truth = truth
        self._controller = controller
        self._draw = random.Random(seed)
        self._next = 0
        self._now_s = 0.0
        self._rows: list[SimulatedRow] = []
        self._begins: frozenset[str] = frozenset()
        self.ticks: list[Tick] = []
        self.finished: list[Finished] = []

    def run(self, until_s: float = float("inf")) -> None:
        """Live until every request is done, or until a time."""
        steps: tuple[StepSample, ...] = ()
        while self._now_s < until_s:
            if not self._rows and not self._admitted():
                if self._next >= len(self._arrivals):
                    return
                self._now_s = self._arrivals[self._next].at_s
                continue
            plan = self._controller.plan(self._signals(steps))
            steps = self._lived(plan)

    def _admitted(self) -> bool:
        """Start every request that has arrived and has room."""
        while (
            self._next < len(self._arrivals)
            and len(self._rows) < self._truth.max_rows
            and self._arrivals[self._next].at_s <= self._now_s
        ):
            arrival = self._arrivals[self._next]
            self._rows.append(SimulatedRow.of(arrival))
            self._next += 1
        return bool(self._rows)

    def _num_waiting(self) -> int:
        waiting = 0
        for arrival in self._arrivals[self._next :]:
            if arrival.at_s > self._now_s:
                break
            waiting += 1
        return waiting

    def _decoding(self) -> list[SimulatedRow]:
        return [row for row in self._rows if row.prompt_left == 0]

    def _signals(self, steps: tuple[StepSample, ...]) -> Signals:
        decoding = self._decoding()
        rows = len(decoding)
        start_s, end_s = self._truth.red
        conditions = {
            name: DrafterCondition(
                catch_up_s=self._catch_up_s([row for row in decoding if name not in row.followed]),
                sync_s=rows * self._truth.catch_up_s / 100.0,
            )
            for name in self._truth.ladder.names
        }
        return Signals(
            self._now_s,
            self._draw.random(),
            rows,
            self._num_waiting(),
            self._truth.max_rows - len(self._rows),
            sum(step.num_other_tokens for step in steps) // max(1, len(steps)),
            0,
            steps,
            drafters=conditions,
            reading=MemoryReading(1000, 1 if start_s <= self._now_s < end_s else 500, None),
        )

    def _lived(self, plan: Plan) -> tuple[StepSample, ...]:
        """Run the steps up to the next decision."""
        decoding = self._decoding()
        contents = Counter(row.arrival.content for row in decoding)
        worths = self._truth.worths(contents, self._now_s) if contents else {PLAIN_ARM: 1.0}
        start_s, total, steps = self._now_s, _Sum(), []
        caught_up_s = catch_up_s = self._catch_up_s(self._caught_up(plan, decoding))
        worth = self._worth(decoding, plan) if decoding else _Worth(1.0, 1.0)
        for _ in range(_STEPS_PER_DECISION):
            steps.append(self._step(plan, caught_up_s, total))
            caught_up_s = 0.0
            if not self._admitted():
                break
        if decoding:
            self.ticks.append(
                Tick(
                    at_s=start_s,
                    seconds=self._now_s - start_s,
                    own_s=total.own_s,
                    decode_s=total.decode_s,
                    num_rows=len(decoding),
                    arm=plan.arm,
                    is_probe=getattr(self._controller, "is_probing", False),
                    worth=worth.over(len(steps), catch_up_s),
                    worths=worths,
                    plain_s=total.plain_s,
                )
            )
        return tuple(steps)

    def _catch_up_s(self, rows: Sequence[SimulatedRow]) -> float:
        return len(rows) * self._truth.catch_up_s

    def _caught_up(self, plan: Plan, decoding: list[SimulatedRow]) -> list[SimulatedRow]:
        """Note whom each drafter follows under a plan; return whom its own has to catch up with.

        A trial catches up with its own requests and no others, and one that takes over with none.
        """
        drafter, before = plan.arm.drafter, plan.taking_over
        kept = {name for name, how in plan.residency.items() if how is Residency.WARM}
        warm = frozenset(kept if plan.arm.is_plain else {*kept, drafter})
        self._begins = warm if before is None else warm - {before.drafter}
        for row in self._rows:
            row.followed &= warm
        if plan.arm.is_plain or before is not None:
            return []
        lacking = [row for row in decoding[: plan.num_drafting] if drafter not in row.followed]
        for row in lacking:
            row.followed |= {drafter}
        return lacking

    def _arms(self, decoding: list[SimulatedRow], plan: Plan) -> list[Arm]:
        """Return how each of them decodes; the first few draft in a trial."""
        drafting = [row.arm_under(plan) for row in decoding[: plan.num_drafting]]
        return drafting + [PLAIN_ARM] * (len(decoding) - len(drafting))

    def _seconds(self, arms: list[Arm]) -> float:
        """Return the time of a step; what a second drafter adds is what it would add alone."""
        rows, costs = len(arms), self._truth.costs
        plain_s = costs.seconds(PLAIN_ARM, rows, 0, 0)
        counts = Counter(arm for arm in arms if not arm.is_plain)
        return plain_s + sum(
            costs.seconds(arm, rows, count * arm.draft_length / rows, 0) - plain_s
            for arm, count in counts.items()
        )

    def _step(self, plan: Plan, extra_s: float, total: _Sum) -> StepSample:
        """Run one step, and enter it into a sum."""
        truth, arm = self._truth, plan.arm
        prefilled = self._prefilled()
        decoding = self._decoding()
        rows, arms = len(decoding), self._arms(decoding, plan)
        other_s = prefilled * truth.costs.prefill_s
        spent_s = self._seconds(arms) if rows else 0.0
        noise = max(0.5, self._draw.gauss(1.0, truth.noise))
        if self._draw.random() < truth.spike_share:
            noise *= 5.0
        own_s = spent_s + other_s + extra_s
        self._now_s += own_s * noise
        graded, accepted, emitted = self._emitted(list(zip(decoding, arms, strict=True)), plan)
        plain_s = truth.costs.seconds(PLAIN_ARM, rows, 0, 0) / rows if rows else 0.0
        total.own_s += own_s
        total.plain_s += other_s + emitted * plain_s
        total.decode_s += spent_s + extra_s
        other = prefilled + int(extra_s > 0.0)
        return StepSample(
            arm,
            rows,
            arms.count(arm) * arm.draft_length,
            num_other_tokens=other,
            num_emitted_tokens=emitted,
            step_time_s=own_s * noise,
            graded=graded,
            accepted=accepted,
            is_mixed=not {arm, PLAIN_ARM}.issuperset(arms),
        )

    def _worth(self, decoding: list[SimulatedRow], plan: Plan) -> _Worth:
        """Return what a step of a plan may be expected to bring."""
        truth, arms = self._truth, self._arms(decoding, plan)
        each = zip(decoding, arms, strict=True)
        tokens = sum(truth.tokens(row.arrival.content, arm, self._now_s) for row, arm in each)
        plain_s = truth.costs.seconds(PLAIN_ARM, len(arms), 0, 0)
        return _Worth(plain_s * tokens / len(arms), self._seconds(arms))

    def _prefilled(self) -> int:
        """Compute a part of the prompts; return its tokens."""
        left = self._truth.prefill_tokens
        for row in self._rows:
            part = min(left, row.prompt_left)
            if 0 < part == row.prompt_left:
                row.followed = self._begins
            row.prompt_left -= part
            left -= part
        return self._truth.prefill_tokens - left

    def _emitted(
        self, decoding: list[tuple[SimulatedRow, Arm]], plan: Plan
    ) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Let every row gain its tokens; return grades, right ones and the number of tokens."""
        now_s, emitted = self._now_s, 0
        full = self._reach(plan.arm)
        reached, looked = [0] * (full + 1), [0] * (full + 1)
        for index, (row, arm) in enumerate(decoding):
            right = self._num_right(row, arm)
            if arm == plan.arm and full:
                is_whole = self._truth.free_grades and index < plan.num_graded
                width = full if is_whole else arm.draft_length
                looked[min(right, width - 1)] += 1
                if right:
                    reached[min(right, width) - 1] += 1
            gained = min(row.output_left, 1 + min(right, arm.draft_length))
            row.output_left -= gained
            emitted += gained
            if row.first_s is None:
                row.first_s = now_s
            if row.output_left == 0:
                self._end(row)
        self._rows = [row for row in self._rows if row.output_left > 0]
        return _at_least(looked)[:full], _at_least(reached)[:full], emitted

    def _reach(self, arm: Arm) -> int:
        return 0 if arm.is_plain else self._truth.ladder.rungs_of(arm.drafter).draft_lengths[-1]

    def _num_right(self, row: SimulatedRow, arm: Arm) -> int:
        """Return how many draft tokens its drafter has right in a row, as far as it reaches."""
        if arm.is_plain:
            return 0
        chance = self._truth.chance(row.arrival.content, arm.drafter, self._now_s)
        return min(self._reach(arm), _num_right(self._draw.random(), chance))

    def _end(self, row: SimulatedRow) -> None:
        first_s = row.first_s if row.first_s is not None else self._now_s
        queue_s, decode_s = first_s - row.arrival.at_s, self._now_s - first_s
        self.finished.append(Finished(queue_s, decode_s, row.arrival.num_output_tokens))


def _num_right(draw: float, chance: float) -> int:
    """Return how many draft tokens in a row are right, for a uniform draw."""
    if chance <= 0.0 or draw <= 0.0:
        return 0
    return 1_000 if chance >= 1.0 else int(log(draw) / log(chance))


def _at_least(counts: list[int]) -> tuple[int, ...]:
    """Return how many counted at a place or a later one."""
    return tuple(accumulate(reversed(counts)))[::-1]

"""The live policy while an operator and the machine give it no rest."""

import random
from dataclasses import replace
from itertools import cycle, zip_longest

from benchmarks.rigs.made_up_times import step_times
from benchmarks.rigs.planners import Reach
from deployments.control import PolicyPlanner
from deployments.observation import Sources, Surroundings
from deployments.step_times import draft_lengths
from dflash.plan import DraftPlan, PlanSignals
from dflash.stats import StepStats
from policy.arms import Ladder, Rungs
from policy.limits import Limits
from policy.pins import ALL_REPLICAS, Pin
from policy.readings import MemoryReading, MemoryTrouble

_CHANGE_CHANCE = 0.2
_PIN_CHANCE, _LIMIT_CHANCE, _LONG_CHANCE = 0.8, 0.2, 0.03
_SHORT_CHANCE = 0.1
_SHORT_SHARES = (0.0, 0.001, 0.01)


class PolicyFailedError(Exception):
    """The policy raised; the engine would have gone on, but here that is what is looked for."""


class UnquietPolicy:
    """The policy over made-up step times, with other limits, pins and memory every few steps."""

    def __init__(self, reach: Reach, seed: int) -> None:
        self._random = random.Random(seed)
        self._ladder = Ladder(
            tuple(Rungs(name, draft_lengths(most)) for name, most in reach.items())
        )
        # Of every drafter one arm in turn, the widest first.
        arms = [self._ladder.arms_of(name, reach[name])[::-1] for name in self._ladder.names]
        self._arms = cycle([arm for group in zip_longest(*arms) for arm in group if arm])
        self._now_s = 0.0
        self._reading = MemoryReading()
        self._last = self._told = StepStats()
        self._policy = PolicyPlanner(
            step_times(self._ladder),
            sources=Sources(
                reading=lambda: self._reading,
                context_bytes=100,
                weights_bytes=100,
                clock=lambda: self._now_s,
                draw=self._random.random,
            ),
        )

    def plan(self, signals: PlanSignals) -> DraftPlan:
        """Return the policy's plan.

        Raises:
            PolicyFailedError: A decision failed.
        """
        # Now and then so long that probes, pins and releases are due.
        self._now_s += 40.0 if self._random.random() < _LONG_CHANCE else 0.5
        if self._random.random() < _CHANGE_CHANCE:
            self._policy.surroundings = self._surroundings()
        if signals.last is not self._last:
            self._last = signals.last
            # Times of its own, or two runs with one seed would differ.
            time_s = 0.01 * self._random.choice((1.0, 1.1, 1.2, 5.0))
            self._told = replace(signals.last, step_time_s=time_s)
        plan = self._policy.plan(replace(signals, last=self._told))
        if self._policy.num_errors:
            raise PolicyFailedError(self._policy.last_error)
        return plan

    def _surroundings(self) -> Surroundings:
        draw, names = self._random, self._ladder.names
        is_limited = draw.random() < _LIMIT_CHANCE
        limits = Limits(
            max_concurrency=dict.fromkeys(names, draw.choice((0, 2, 8))) if is_limited else {},
            max_draft_length=draw.choice((0, 2)) if draw.random() < _LIMIT_CHANCE else None,
            dwell_s=draw.choice((0.001, 2.0)),
            switches_per_minute=draw.choice((6.0, 600.0)),
        )
        self._reading = MemoryReading(1000, 500, None, is_throttled=draw.random() < _LIMIT_CHANCE)
        if draw.random() < _SHORT_CHANCE:
            self._reading = MemoryReading(trouble=draw.choice(tuple(MemoryTrouble)))
        elif draw.random() < _SHORT_CHANCE:
            self._reading = MemoryReading(1000, int(1000 * draw.choice(_SHORT_SHARES)), None)
        return Surroundings(limits, (self._pin(),) if draw.random() < _PIN_CHANCE else ())

    def _pin(self) -> Pin:
        """Order the next arm of all: without orders, drafts that are never right would never be."""
        expires_s = self._now_s + self._random.choice((0.5, 100.0))
        return Pin(next(self._arms), (ALL_REPLICAS,), "a storm", "unrest", expires_s)

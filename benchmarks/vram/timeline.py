"""The policy as it is watched: what it holds, what it gives up, what comes back."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.rigs.nvml_shim import NvmlShim
from deployments.control import PolicyPlanner
from dflash.drafters.held import HeldDrafter
from dflash.plan import DraftPlan, PlanSignals, Release


@dataclass(frozen=True, slots=True)
class Moment:
    """What was in force from a moment on.

    Attributes:
        at_s: Since the beginning, seconds.
        act: What the co-tenant does.
        level: How short memory is.
        release: What is given up for it.
        arm: Who drafts how far; beneath a trial, what is in force.
        reason: Why.
        own_bytes: What the replica holds.
    """

    at_s: float
    act: str
    level: str
    release: str
    arm: str
    reason: str
    own_bytes: int


@dataclass(slots=True)
class Loss:
    """A drafter's context, given up.

    Attributes:
        drafter: Whose.
        num_pages: Pages of live requests that held it and do not any more.
        num_regained: Most pages of live requests that held it again, before the next loss.
    """

    drafter: str
    num_pages: int
    num_regained: int = 0

    @property
    def num_restored(self) -> int:
        """Pages that came back: no more than were lost, however many are written since."""
        return min(self.num_pages, self.num_regained)


def restored_share(losses: list[Loss]) -> float:
    """Return the share of all lost pages that came back; 1 where none was lost."""
    lost = sum(loss.num_pages for loss in losses)
    return sum(loss.num_restored for loss in losses) / lost if lost else 1.0


def context_pages(signals: PlanSignals, drafter: str) -> int:
    """Return the pages of live requests that are full of a drafter's context."""
    computed = sum(request.num_tokens - 1 for request in signals.decoding)
    return max(0, computed - signals.num_behind[drafter]) // signals.page_size


class WatchedPolicy:
    """The policy between an engine and a device: it tells the one what the other holds.

    Attributes:
        act: What the co-tenant does now.
        moments: Each change of act, level, release or drafter.
        losses: Each context that was given up.
        num_weights_released: Times that weights were given back.
        num_weights_loaded: Times that they were loaded again.
    """

    def __init__(
        self,
        policy: PolicyPlanner,
        drafters: Mapping[str, HeldDrafter],
        rest_bytes: int,
        shim: NvmlShim,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to watch.

        Args:
            policy: Asked.
            drafters: What can be given back.
            rest_bytes: What the replica holds for good: the target's weights and its pages.
            shim: The device.
            clock: Seconds.
        """
        self.act = ""
        self.moments: list[Moment] = []
        self.losses: list[Loss] = []
        self.num_weights_released = self.num_weights_loaded = 0
        self._policy, self._drafters, self._rest_bytes = policy, drafters, rest_bytes
        self._shim, self._clock, self._start_s = shim, clock, clock()
        self._held = dict.fromkeys(drafters, True)
        self._pages: Mapping[str, int] = dict.fromkeys(drafters, 0)
        self._released: Mapping[str, Release] = {}
        self._lost: frozenset[str] | set[str] = frozenset()
        self._told_bytes = -1
        self._tell()

    @property
    def own_bytes(self) -> int:
        """What the replica holds: each part of it that is alive, whether written or set aside."""
        parts = [self._rest_bytes]
        for name, drafter in self._drafters.items():
            parts.append(drafter.weights_bytes if drafter.is_held else 0)
            parts.append(0 if name in self._released else drafter.context_bytes)
        return sum(parts)

    def plan(self, signals: PlanSignals) -> DraftPlan:
        """Return what the policy says."""
        # What was planned for the step before has been carried out in it.
        now = {name: context_pages(signals, name) for name in self._drafters}
        self._see(now)
        self._tell()
        plan = self._policy.plan(signals)
        self._pages, self._lost = now, plan.released.keys() - self._released.keys()
        self._released = plan.released
        self._note()
        return plan

    def _see(self, pages: Mapping[str, int]) -> None:
        """Enter what the step before has taken away and brought back."""
        for name in sorted(self._lost):
            self.losses.append(Loss(name, max(0, self._pages[name] - pages[name])))
        for name, drafter in self._drafters.items():
            newest = next((loss for loss in reversed(self.losses) if loss.drafter == name), None)
            if newest is not None:
                newest.num_regained = max(newest.num_regained, pages[name])
            self.num_weights_released += self._held[name] and not drafter.is_held
            self.num_weights_loaded += drafter.is_held and not self._held[name]
            self._held[name] = drafter.is_held

    def _tell(self) -> None:
        own_bytes = self.own_bytes
        if own_bytes != self._told_bytes:
            self._shim.hold(own_bytes)
            self._told_bytes = own_bytes

    def _note(self) -> None:
        decision = self._policy.decision
        state, arm = decision.state, decision.state.home_of(decision.plan.arm)
        moment = Moment(
            self._clock() - self._start_s,
            self.act,
            str(state.governor.level),
            state.governor.release.name.lower(),
            arm.name,
            str(decision.reason),
            self.own_bytes,
        )
        if not self.moments or _key(moment) != _key(self.moments[-1]):
            self.moments.append(moment)


def _key(moment: Moment) -> tuple[str, ...]:
    """Return what makes a moment another one: widths and reasons change all the time."""
    drafter, _, _ = moment.arm.partition(":")
    return moment.act, moment.level, moment.release, drafter

"""Who serves an arm: an engine without drafters, one with a fixed plan, or one with the policy."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.speculation.arms import PLAIN, PLAIN_AGAIN, Arm
from benchmarks.speculation.serving import Server
from benchmarks.speculation.visits import Load, Visit
from dflash.plan import DraftPlan, Planner, PlanSignals
from policy.arms import PLAIN_ARM
from policy.arms import Arm as PolicyArm

AUTO = "auto"
PLAIN_IN_PLACE = "plain in place"


@dataclass(slots=True)
class WatchedPlanner:
    """A planner, what it said, and the time it took.

    Attributes:
        planner: Asked.
        seconds: Spent in it, since the last `reset`.
        said: Steps by the arm of their plan, likewise.
    """

    planner: Planner
    seconds: float = 0.0
    said: Counter[PolicyArm] = field(default_factory=Counter)

    def plan(self, signals: PlanSignals) -> DraftPlan:
        """Return what the planner says."""
        started_s = time.perf_counter()
        plan = self.planner.plan(signals)
        self.seconds += time.perf_counter() - started_s
        arm = plan.arm
        self.said[PolicyArm(arm.drafter, arm.draft_length) if arm.draft_length else PLAIN_ARM] += 1
        return plan

    def reset(self) -> None:
        """Count anew."""
        self.seconds, self.said = 0.0, Counter()


class Servers:
    """One way of serving for each arm; the policy goes on from one visit to the next.

    Attributes:
        said: Steps of the policy by load and arm.
        planner_shares: Share of each visit's steps that the policy took, by load.
    """

    def __init__(self, plain: Server, drafting: Server, policy: Planner) -> None:
        """Take the servers.

        Args:
            plain: Of an engine without drafters.
            drafting: Of one with them.
            policy: Plans the steps of the arm ``auto``.
        """
        self.said: dict[Load, Counter[PolicyArm]] = {}
        self.planner_shares: dict[Load, list[float]] = {}
        self._plain, self._drafting = plain, drafting
        self._watched = WatchedPlanner(policy)

    def visit(
        self, prompts: Sequence[Sequence[int]], load: Load, arm: Arm, round_index: int
    ) -> Visit:
        """Serve every prompt in an arm, as `Server.visit` does."""
        if arm.name in (PLAIN, PLAIN_AGAIN):
            return self._plain.visit(prompts, load, arm, round_index)
        if arm.name != AUTO:
            return self._drafting.visit(prompts, load, arm, round_index)
        self._watched.reset()
        visit = self._drafting.visit(prompts, load, arm, round_index, self._watched)
        self.said.setdefault(load, Counter()).update(self._watched.said)
        share = self._watched.seconds / sum(visit.decode_step_s)
        self.planner_shares.setdefault(load, []).append(share)
        return visit

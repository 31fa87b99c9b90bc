"""Simulated controllers as planners of a real engine: told what the policy is told."""

from collections.abc import Callable

from benchmarks.simulate.baselines import EmaTiers, tuned_table
from deployments.control import PolicyPlanner
from deployments.engine_plan import draft_plan
from deployments.observation import Observation, Sources
from deployments.step_times import StepTimes
from dflash.plan import DraftPlan, FixedPlanner, Planner, PlanSignals
from policy.arms import Arm
from policy.decision import Plan
from policy.simulate import Controller
from policy.truth import Truth

AUTO, PLAIN, PLAIN_AGAIN = "auto", "plain", "plain again"
# What whoever tunes the table believes: a draft token is right this often.
_BELIEVED = 0.6


class ControllerPlanner:
    """A controller, asked whenever the policy would be."""

    def __init__(self, controller: Controller, times: StepTimes) -> None:
        self._controller = controller
        self._observation = Observation(times, Sources())
        self._plan = Plan()

    def plan(self, signals: PlanSignals) -> DraftPlan:
        """Return what the controller says."""
        if self._observation.see(signals, self._plan.arm):
            self._plan = self._controller.plan(self._observation.look(signals))
        return draft_plan(self._plan)


def fixed_planner(arm: Arm) -> Planner:
    """Return a planner that always says the same."""
    return FixedPlanner(draft_plan(Plan(arm)))


def adaptive_planners(times: StepTimes) -> dict[str, Callable[[], Planner]]:
    """Return what decides while it runs, by name; each call makes a new one."""
    heaviest = times.ladder.names[0]
    chances = {"any": dict.fromkeys(times.ladder.names, _BELIEVED)}
    truth = Truth(times.ladder, times.costs, chances)
    return {
        AUTO: lambda: PolicyPlanner(times),
        "batch table": lambda: ControllerPlanner(tuned_table(truth), times),
        "acceptance tiers": lambda: ControllerPlanner(EmaTiers(heaviest), times),
    }

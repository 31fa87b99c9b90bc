"""One request in a simulated replica."""

from dataclasses import dataclass

from policy.arms import PLAIN_ARM, Arm
from policy.decision import Plan
from policy.truth import Arrival


@dataclass(slots=True)
class SimulatedRow:
    """A request that runs.

    Attributes:
        arrival: What arrived.
        prompt_left: Tokens of its prompt that are still to be computed.
        output_left: Tokens that it will still emit.
        first_s: When it emitted its first token; None before.
        followed: Drafters whose context has all its tokens.
    """

    arrival: Arrival
    prompt_left: int
    output_left: int
    first_s: float | None = None
    followed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, arrival: Arrival) -> "SimulatedRow":
        """Return one of which nothing was computed."""
        return cls(arrival, arrival.num_prompt_tokens, arrival.num_output_tokens)

    def arm_under(self, plan: Plan) -> Arm:
        """Return how it decodes where a plan drafts for it."""
        arms = (plan.arm, plan.taking_over or PLAIN_ARM)
        return next((arm for arm in arms if arm.drafter in self.followed), PLAIN_ARM)

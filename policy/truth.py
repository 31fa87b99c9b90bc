"""What is true in a simulated replica: its traffic, its step times, its drafters' chances."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from policy.arms import PLAIN_ARM, Arm, Ladder
from policy.cost import CostTable


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a trace.

    Attributes:
        at_s: When it arrives, seconds.
        num_prompt_tokens: Tokens to prefill.
        num_output_tokens: Tokens it will emit.
        content: Which chances its draft tokens have.
    """

    at_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    content: str


@dataclass(frozen=True, slots=True)
class Truth:
    """What is true in the simulated replica, and what a controller has to find out.

    Attributes:
        ladder: The drafters.
        costs: Times of steps.
        chances: Chance that a draft token is right when those before it are, by content, then by
            drafter.
        broken: From when to when a drafter gets nothing right, seconds, by drafter.
        red: From when to when a co-tenant leaves no memory, seconds.
        max_rows: Most requests at once.
        prefill_tokens: Most tokens of prompts in a step.
        noise: Relative deviation of step times.
        spike_share: Share of steps that take five times as long.
        catch_up_s: Time for one request's drafter context that was left alone, seconds.
        free_grades: Whether places beyond the verified ones are graded.
    """

    ladder: Ladder
    costs: CostTable
    chances: Mapping[str, Mapping[str, float]]
    broken: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    red: tuple[float, float] = (0.0, 0.0)
    max_rows: int = 64
    prefill_tokens: int = 2048
    noise: float = 0.05
    spike_share: float = 0.004
    catch_up_s: float = 0.001
    free_grades: bool = True

    def chance(self, content: str, drafter: str, now_s: float) -> float:
        """Return the chance of a draft token of a request now."""
        start_s, end_s = self.broken.get(drafter, (0.0, 0.0))
        return 0.0 if start_s <= now_s < end_s else self.chances[content][drafter]

    def tokens(self, content: str, arm: Arm, now_s: float) -> float:
        """Return the tokens that a request is expected to emit in a step."""
        if arm.is_plain:
            return 1.0
        chance = self.chance(content, arm.drafter, now_s)
        return sum(chance**place for place in range(arm.draft_length + 1))

    def worths(self, contents: Counter[str], now_s: float) -> dict[Arm, float]:
        """Return what every arm is truly worth; plain decoding is 1."""
        rows = contents.total()
        plain_s = self.costs.seconds(PLAIN_ARM, rows, 0, 0)
        found = {PLAIN_ARM: 1.0}
        for rungs in self.ladder.drafters:
            widest = rungs.draft_lengths[-1]
            tokens = [0.0] * (widest + 1)
            for content, count in contents.items():
                chance = self.chance(content, rungs.drafter, now_s)
                sums = accumulate(chance**place for place in range(widest + 1))
                tokens = [total + count * s for total, s in zip(tokens, sums, strict=True)]
            for arm in self.ladder.arms_of(rungs.drafter, widest):
                width = arm.draft_length
                seconds = self.costs.seconds(arm, rows, width, 0)
                found[arm] = tokens[width] / rows * plain_s / seconds
        return found

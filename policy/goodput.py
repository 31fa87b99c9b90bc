"""What an arm is worth: the time plain decoding would need for what it does, over its own."""

from dataclasses import dataclass, field

from policy.arms import PLAIN_ARM, Arm
from policy.correction import Corrections
from policy.cost import CostTable, PriceLine
from policy.survival import Outlook


@dataclass(frozen=True, slots=True)
class Load:
    """What a step has to carry.

    Attributes:
        num_rows: Requests that decode.
        num_prefill_tokens: Tokens of prompts beside them.
        num_context_tokens: Mean tokens of each.
    """

    num_rows: int
    num_prefill_tokens: int = 0
    num_context_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Worth:
    """What an arm is worth under a load.

    Attributes:
        arm: The arm.
        value: Plain decoding is exactly 1.
        lower: What it is worth at least, a deviation of its acceptance below the mean.
        seconds: Time of a step.
    """

    arm: Arm
    value: float
    lower: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Prices:
    """Corrected step times at one moment; what was worked out once is kept."""

    table: CostTable
    corrections: Corrections
    now_s: float
    _lines: dict[tuple[str, int, int], PriceLine] = field(default_factory=dict)
    _seconds: dict[tuple[Arm, int, int, float], float] = field(default_factory=dict)

    def seconds(self, arm: Arm, load: Load, width: float) -> float:
        """Return the time of a step of decoding alone."""
        rows, context = load.num_rows, load.num_context_tokens
        found = self._seconds.get((arm, rows, context, width))
        if found is None:
            line = self._lines.get((arm.drafter, rows, context))
            if line is None:
                line = self.table.priced(arm.drafter, rows, context)
                self._lines[arm.drafter, rows, context] = line
            found = line.at(width) * self.corrections.factor(arm, rows, self.now_s)
            self._seconds[arm, rows, context, width] = found
        return found


def plain_worth(prices: Prices, load: Load) -> Worth:
    """Return the yardstick."""
    seconds = prices.seconds(PLAIN_ARM, load, 0.0)
    return Worth(PLAIN_ARM, 1.0, 1.0, seconds + prices.table.prefill_s * load.num_prefill_tokens)


def drafting_worth(
    arm: Arm, outlook: Outlook, ceilings: tuple[int, ...], prices: Prices, load: Load
) -> Worth:
    """Return what a drafting arm is worth.

    Not tokens by time: a long prompt in the step would make every arm look alike, and wide drafts,
    which let it wait, look good. In time that plain decoding would have needed, a step is worth its
    own plain step and one plain step of decoding for each mean token beyond the first.

    Args:
        arm: The arm.
        outlook: What its drafter may be expected to bring.
        ceilings: Draft lengths that requests do not want to be exceeded, one for each of them that
            has one.
        prices: Step times.
        load: What the step has to carry.
    """
    width, tokens, spread = _over_rows(arm.draft_length, outlook, ceilings, load.num_rows)
    plain = prices.seconds(PLAIN_ARM, load, 0.0)
    prefill = prices.table.prefill_s * load.num_prefill_tokens
    seconds = prices.seconds(arm, load, width) + prefill
    gain = plain + prefill + (tokens - 1.0) * plain
    return Worth(arm, gain / seconds, (gain - spread * plain) / seconds, seconds)


def _over_rows(
    draft_length: int, outlook: Outlook, ceilings: tuple[int, ...], num_rows: int
) -> tuple[float, float, float]:
    """Return mean draft length, mean tokens and their spread over all rows of a step."""
    tokens, spread = outlook.tokens(draft_length), outlook.spread(draft_length)
    binding = [ceiling for ceiling in ceilings if ceiling < draft_length]
    if not binding:
        return float(draft_length), tokens, spread
    free = max(0, num_rows - len(binding))
    rows = free + len(binding)
    width = (free * draft_length + sum(binding)) / rows
    mean = (free * tokens + sum(outlook.tokens(ceiling) for ceiling in binding)) / rows
    return width, mean, spread * (mean - 1.0) / max(tokens - 1.0, 1e-9)

"""What a simulation takes for the truth: an H200 as published, or this machine as measured now."""

from dataclasses import dataclass

from benchmarks.simulate.h200 import CHANCES as H200_CHANCES
from benchmarks.simulate.h200 import LADDER, PUBLISHED
from policy.arms import Ladder
from policy.cost import CostTable
from policy.truth import Truth


@dataclass(frozen=True, slots=True)
class Model:
    """A replica to simulate.

    Attributes:
        truth: Its drafters, step times and chances.
        context: Most tokens of a request; longer ones are clipped.
        horizon_s: How long it is simulated; a slow machine needs longer for as many requests.
        costs_note: What its step times leave out.
        is_published: Its step times come from published throughputs.
    """

    truth: Truth
    context: int
    horizon_s: float
    costs_note: str
    is_published: bool = False

    @property
    def contents(self) -> tuple[str, ...]:
        """The tasks that requests may be of."""
        return tuple(self.truth.chances)


def h200(costs: CostTable | None = None) -> Model:
    """Return one H200 serving Qwen3.8-27B; with costs of another fit, if there are some."""
    return Model(
        Truth(LADDER, costs or PUBLISHED.table(), H200_CHANCES),
        context=4096,
        horizon_s=600.0,
        costs_note="Costs do not grow with context here.",
        is_published=True,
    )


# The share of draft tokens kept where all before them were, greedy, over the first three places:
# `python -m benchmarks.speculation --quick --tasks DIR`, commit 324c13a.
_EMBEDDED_CHANCES = {
    "gsm8k": {"dflash2": 0.62, "mtp": 0.72},
    "humaneval": {"dflash2": 0.61, "mtp": 0.69},
    "math500": {"dflash2": 0.58, "mtp": 0.69},
    "mbpp": {"dflash2": 0.63, "mtp": 0.67},
    "mt_bench": {"dflash2": 0.50, "mtp": 0.52},
}


def here(ladder: Ladder, costs: CostTable) -> Model:
    """Return this machine serving the embedded model.

    Args:
        ladder: Its drafters.
        costs: Their step times, measured.
    """
    # A context that was left alone is computed again: so many tokens a request, on average.
    behind = 256
    truth = Truth(
        ladder,
        costs,
        _EMBEDDED_CHANCES,
        prefill_tokens=512,
        catch_up_s=behind * costs.prefill_s,
    )
    note = f"A context that was left alone costs {behind} tokens of prefill a request."
    return Model(truth, context=2048, horizon_s=1800.0, costs_note=note)

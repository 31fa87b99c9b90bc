"""How a drafter is trained: for how long, how fast, on how much at once."""

import math
from dataclasses import dataclass

from dflash.errors import ConfigError
from dflash.train.bounds import check_positive, check_within

_WARM_UP = 0.04
_LAST_SHARE = 0.02
# Steps are added to it, and the sum still has to be a seed of the library.
_MAX_SEED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Plan:
    """How to train.

    Attributes:
        seed: Of every draw, and of the first parameters.
        learning_rate: At its peak.
        sequences_per_step: Sequences of one step.
        anchors_per_sequence: Most anchors drawn from one sequence and step.
        decay: Slots of one e-fold of a slot's weight; None weighs slots by how likely they are
            to be reached.
        second_version_at: Share of the run after which convolutions and selector take part; at 1
            they never do.
        steps: Steps of the run; None when `minutes` bounds it.
        minutes: Time the run may train for; None when `steps` bounds it.
    """

    seed: int
    learning_rate: float
    sequences_per_step: int
    anchors_per_sequence: int
    decay: float | None
    second_version_at: float
    steps: int | None
    minutes: float | None

    def __post_init__(self) -> None:
        check_within("--seed", self.seed, 0, _MAX_SEED)
        check_positive("--learning-rate", self.learning_rate)
        check_within("--sequences-per-step", self.sequences_per_step, 1)
        check_within("--anchors", self.anchors_per_sequence, 1)
        check_within("--second-version-at", self.second_version_at, 0, 1)
        if self.decay is not None:
            check_positive("--decay", self.decay)
        if self.steps is not None:
            check_within("--steps", self.steps, 1)
        if self.minutes is not None:
            check_positive("--minutes", self.minutes)

    def progress_at(self, step: int, elapsed_s: float) -> float:
        """Return the share of the run that is done, in [0, 1], after steps and seconds in them."""
        if self.steps is not None:
            return min(step / self.steps, 1.0)
        if self.minutes is not None:
            return min(elapsed_s / (60 * self.minutes), 1.0)
        raise ConfigError("a run has no length; give --steps or --minutes")

    def is_second_version_at(self, progress: float) -> bool:
        """Return whether convolutions and selector take part at a share of the run."""
        return progress >= self.second_version_at < 1

    def learning_rate_at(self, progress: float) -> float:
        """Return the rate at a share of the run, in [0, 1]: up linearly, down along a cosine."""
        if progress < _WARM_UP:
            return self.learning_rate * (progress / _WARM_UP)
        share = (progress - _WARM_UP) / (1 - _WARM_UP)
        falling = 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))
        return self.learning_rate * (_LAST_SHARE + (1 - _LAST_SHARE) * falling)

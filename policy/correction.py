"""How far live steps are from the table, learnt while they run and forgotten with age."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import exp

from policy.arms import Arm

_GAIN = 0.1
_LEAST, _MOST = 0.5, 2.0
# A step this many times off what is believed is a spike: a collection, a co-tenant's burst.
_SPIKE = 1.6
# So many in a row are no spikes but the truth.
_BELIEVED_AFTER = 8
# How fast a level that is not measured any more falls back to the wider one's, seconds.
_AGE_S = 60.0
# From here on the table counts as wrong, and someone should measure it again.
_DRIFT = 1.25


@dataclass(frozen=True, slots=True)
class Level:
    """One ratio of measured to tabulated time.

    Attributes:
        ratio: Over 1 where steps take longer than the table says.
        at_s: When it was last measured, seconds.
        num_steps: Steps it was learnt from.
    """

    ratio: float
    at_s: float
    num_steps: int


@dataclass(frozen=True, slots=True)
class Drift:
    """A part of the table that live steps contradict.

    Attributes:
        where: Drafter, draft length and load, such as ``dflash2:7@8``; empty for every step.
        ratio: Measured over tabulated.
        num_steps: Steps that say so.
    """

    where: str
    ratio: float
    num_steps: int


@dataclass(frozen=True, slots=True)
class Corrections:
    """What live steps say about the table: everywhere, by drafter and load, by arm and load.

    A level that is not measured falls back, with its age, to the next wider one: what slowed the
    machine down slows every arm, and one bad minute of an arm must not keep it from being tried.

    Attributes:
        levels: By name; the empty one is over all steps.
        num_spikes: Steps in a row that were taken for spikes.
        num_rejected: Steps taken for spikes ever.
    """

    levels: Mapping[str, Level] = field(default_factory=dict)
    num_spikes: int = 0
    num_rejected: int = 0

    def factor(self, arm: Arm, rows: int, now_s: float) -> float:
        """Return what to multiply a tabulated time with."""
        ratio = 1.0
        for name in _names(arm, rows):
            level = self.levels.get(name)
            if level is not None:
                # The level over all steps has no wider one; it holds whatever its age.
                age = exp(-(now_s - level.at_s) / _AGE_S) if name else 1.0
                ratio += (level.ratio - ratio) * age
        return ratio

    def plus(self, arm: Arm, rows: int, ratio: float, now_s: float) -> "Corrections":
        """Return it with one step more.

        Args:
            arm: What the step ran.
            rows: Requests that decoded.
            ratio: Its time over the table's.
            now_s: The time, seconds.
        """
        off = ratio / self.factor(arm, rows, now_s)
        is_spike = not 1.0 / _SPIKE < off < _SPIKE
        if is_spike and self.num_spikes + 1 < _BELIEVED_AFTER:
            return replace(self, num_spikes=self.num_spikes + 1, num_rejected=self.num_rejected + 1)
        levels = dict(self.levels)
        wider = 1.0
        for name in _names(arm, rows):
            old = levels.get(name)
            start = wider if old is None else old.ratio
            wider = min(_MOST, max(_LEAST, start + _GAIN * (ratio - start)))
            levels[name] = Level(wider, now_s, 1 if old is None else old.num_steps + 1)
        return replace(self, levels=levels, num_spikes=self.num_spikes if is_spike else 0)

    def drifts(self) -> tuple[Drift, ...]:
        """Return where the table is wrong by a quarter or more, the worst first."""
        found = [
            Drift(name, level.ratio, level.num_steps)
            for name, level in self.levels.items()
            if not 1.0 / _DRIFT < level.ratio < _DRIFT
        ]
        return tuple(sorted(found, key=lambda drift: -max(drift.ratio, 1.0 / drift.ratio)))


@lru_cache(maxsize=4096)
def _names(arm: Arm, rows: int) -> tuple[str, str, str]:
    """Return the levels of a step, the widest first; loads count by powers of two."""
    load = 1 << max(0, rows - 1).bit_length()
    return "", f"{arm.drafter}@{load}", f"{arm.name}@{load}"

"""How many draft tokens a drafter gets right, by place, and how sure that is."""

from dataclasses import dataclass
from itertools import accumulate, zip_longest
from math import sqrt

# Half of what a place knows comes from this many of its newest grades.
_HALF_LIFE_GRADES = 512
# A place that nobody graded is believed to be like the one before it, this many grades strong.
_PRIOR_GRADES = 8.0
# What a drafter is believed to do before its first grade.
_PRIOR_CHANCE = 0.7
# A new estimate that lies further from the old one than this many deviations takes its place.
_BREAK_DEVIATIONS = 2.0


@dataclass(frozen=True, slots=True)
class Survival:
    """Aged counts of graded draft tokens of one drafter.

    A token is graded only where all before it were right, so the share of right ones at a place is
    a chance under that condition, and what was never graded is never taken for a refusal. Ageing
    goes by grades, not by time or steps: a place forgets only what it has newer evidence for.

    Attributes:
        graded: Compared, by place; index 0 is the first draft token.
        accepted: Of those, right.
    """

    graded: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()

    def plus(self, graded: tuple[int, ...], accepted: tuple[int, ...]) -> "Survival":
        """Return it with newer grades added and the old ones aged by them."""
        counts, rights = list(self.graded), list(self.accepted)
        missing = [0.0] * (len(graded) - len(counts))
        counts += missing
        rights += missing
        for place, (count, right) in enumerate(zip(graded, accepted, strict=True)):
            keep = 0.5 ** (count / _HALF_LIFE_GRADES)
            counts[place] = counts[place] * keep + count
            rights[place] = rights[place] * keep + right
        return Survival(tuple(counts), tuple(rights))

    def judged_by(self, trial: "Survival") -> "Survival":
        """Return it after a probe: blended where they agree, replaced where they do not.

        Blending alone would need many probes to believe that a drafter broke, or that it healed.
        """
        places = []
        for old, new in zip_longest(_pairs(self), _pairs(trial), fillvalue=(0.0, 0.0)):
            (n_old, right_old), (n_new, right_new) = old, new
            if n_new and n_old:
                gap = abs(right_new / n_new - right_old / n_old)
                # Of both together, so that neither a 0 nor a 1 looks certain.
                chance = (right_old + right_new + 1.0) / (n_old + n_new + 2.0)
                spread = sqrt(chance * (1.0 - chance) * (1.0 / n_old + 1.0 / n_new))
                if gap > _BREAK_DEVIATIONS * spread:
                    n_old = right_old = 0.0
            keep = 0.5 ** (n_new / _HALF_LIFE_GRADES)
            places.append((n_old * keep + n_new, right_old * keep + right_new))
        return Survival(tuple(n for n, _ in places), tuple(right for _, right in places))

    def first_chance(self) -> tuple[float, float]:
        """Return the share of right first tokens, and how many grades it stands on."""
        if not self.graded or not self.graded[0]:
            return _PRIOR_CHANCE, 0.0
        return self.accepted[0] / self.graded[0], self.graded[0]

    def outlook(self, width: int) -> "Outlook":
        """Return what may be expected up to a draft length."""
        before = _PRIOR_CHANCE
        chances, doubts = [], []
        for place in range(width):
            count = self.graded[place] if place < len(self.graded) else 0.0
            right = self.accepted[place] if place < len(self.accepted) else 0.0
            before = (right + _PRIOR_GRADES * before) / (count + _PRIOR_GRADES)
            chances.append(before)
            doubts.append((1.0 - before) / (max(before, 1e-9) * (count + _PRIOR_GRADES + 1.0)))
        survival = tuple(accumulate(chances, float.__mul__))
        return Outlook(survival, tuple(doubts), is_tried=self.first_chance()[1] > 0.0)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a drafter may be expected to bring.

    Attributes:
        survival: Chance that the first tokens up to a place are all right; falls with the place.
        doubts: Relative variance of the chance at each place, given those before it.
        is_tried: Whether any draft was ever graded; what is expected is made up otherwise.
    """

    survival: tuple[float, ...]
    doubts: tuple[float, ...]
    is_tried: bool = False

    def tokens(self, draft_length: int) -> float:
        """Return the expected acceptance length: the tokens of a verify run, extra one included."""
        return 1.0 + sum(self.survival[:draft_length])

    def spread(self, draft_length: int, beyond: int = 0) -> float:
        """Return the standard deviation of that, from the places past ``beyond`` alone.

        Two draft lengths of one drafter share their first places, so only the others can make one
        better than the other. Charging all of them would freeze whatever runs.
        """
        variance = tail = 0.0
        for place in range(draft_length - 1, beyond - 1, -1):
            tail += self.survival[place]
            variance += tail * tail * self.doubts[place]
        return sqrt(variance)


def _pairs(survival: Survival) -> list[tuple[float, float]]:
    return list(zip(survival.graded, survival.accepted, strict=True))

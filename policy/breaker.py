"""Whether a drafter is broken, which is another thing than hard content. Never for good."""

from dataclasses import dataclass, replace

from policy.survival import Survival

# Content makes late places hard. Where even the first token is nearly always wrong, and has been
# over this many grades, the drafter's context or weights are wrong.
_BROKEN_BELOW = 0.15
_HEALED_FROM = 0.20
_MIN_GRADES = 256.0
_MAX_FAULTS = 3


@dataclass(frozen=True, slots=True)
class Breaker:
    """The health of one drafter.

    Attributes:
        is_open: It is broken and may only be probed.
        num_faults: Steps in a row in which it raised.
    """

    is_open: bool = False
    num_faults: int = 0

    def after_step(self, is_fault: bool, survival: Survival) -> "Breaker":
        """Return its health after a step in which it raised, or did not.

        Args:
            is_fault: It raised.
            survival: All that is known of its drafts.
        """
        faults = self.num_faults + 1 if is_fault else 0
        chance, num_grades = survival.first_chance()
        is_broken = faults >= _MAX_FAULTS or (num_grades >= _MIN_GRADES and chance < _BROKEN_BELOW)
        return Breaker(self.is_open or is_broken, faults)

    def after_probe(self, survival: Survival) -> "Breaker":
        """Return its health after a trial that is part of what is known of its drafts."""
        chance, num_grades = survival.first_chance()
        is_healed = num_grades > 0 and chance >= _HEALED_FROM and self.num_faults < _MAX_FAULTS
        return replace(self, is_open=self.is_open and not is_healed)

"""Short trials of what is idle: what one has found, and when the next is due."""

from dataclasses import dataclass, field, replace
from math import ceil

from policy.arms import Arm
from policy.survival import Survival

# The first steps of a drafter run on a context that was just caught up, and are not judged.
NUM_SETTLING_STEPS = 2
_NUM_GRADED_STEPS = 8
_MIN_GRADES = 16
_MAX_STEPS = 32
# Plain decoding is probed for its step time alone.
_NUM_PLAIN_STEPS = 4
# So many requests draft in a trial, and the others decode plainly: enough to grade, and the rest
# loses nothing but the drafter's own time.
NUM_CANARIES = 4
# A trial whose first tokens were all wrong so many times has nothing to find: of a drafter that is
# right every second time it would happen once in 256.
_HOPELESS_GRADES, _HOPELESS_BELOW = 8, 0.15
# Wide enough to grade with; the places beyond are graded for free.
_PROBE_WIDTH = 3


@dataclass(frozen=True, slots=True)
class Pace:
    """Tokens and the time they took, old ones fading.

    Attributes:
        num_tokens: Emitted.
        seconds: Time of their steps.
    """

    num_tokens: float = 0.0
    seconds: float = 0.0

    def plus(self, num_tokens: int, seconds: float) -> "Pace":
        """Return it with one step more."""
        return Pace(self.num_tokens * _FADE + num_tokens, self.seconds * _FADE + seconds)

    def over(self, other: "Pace") -> float | None:
        """Return how many times faster it is than another; None where either saw nothing."""
        if not (self.num_tokens and self.seconds and other.num_tokens and other.seconds):
            return None
        return self.num_tokens * other.seconds / (self.seconds * other.num_tokens)


_FADE = 0.98


@dataclass(frozen=True, slots=True)
class Probe:
    """A trial that runs.

    Attributes:
        arm: What is tried.
        home: What ran before, and runs again if the trial convinces nobody.
        num_drafting: Most requests that draft in it.
        num_steps: Steps so far.
        found: Grades of those that count.
        pace: Tokens and time of those that count.
    """

    arm: Arm
    home: Arm
    num_drafting: int = NUM_CANARIES
    num_steps: int = 0
    found: Survival = field(default_factory=Survival)
    pace: Pace = field(default_factory=Pace)

    @property
    def is_over(self) -> bool:
        """Whether it has seen enough, or has gone on for too long."""
        if self.arm.is_plain:
            return self.num_steps >= _NUM_PLAIN_STEPS
        chance, num_grades = self.found.first_chance()
        if num_grades >= _HOPELESS_GRADES and chance == 0.0:
            return True
        settled = self.num_steps - NUM_SETTLING_STEPS
        enough = settled >= _NUM_GRADED_STEPS and num_grades >= _MIN_GRADES
        return settled >= _MAX_STEPS or enough

    def num_steps_planned(self, known: Survival, num_rows: int) -> int:
        """Return the steps it takes where it finds what is known already.

        Args:
            known: Of its drafter.
            num_rows: Requests that decode.
        """
        if self.arm.is_plain:
            return _NUM_PLAIN_STEPS
        is_hopeless = known.first_chance()[0] < _HOPELESS_BELOW
        num_grades = _HOPELESS_GRADES if is_hopeless else _MIN_GRADES
        num_graded_steps = ceil(num_grades / max(1, min(num_rows, self.num_drafting)))
        if not is_hopeless:
            num_graded_steps = max(_NUM_GRADED_STEPS, num_graded_steps)
        return NUM_SETTLING_STEPS + num_graded_steps


@dataclass(frozen=True, slots=True)
class ProbeClock:
    """When an idle drafter, or idle plain decoding, is tried again.

    Attributes:
        seen_s: When it last ran, seconds; later by all the time since in which nothing decoded.
        gap_s: How long it may stay unseen, seconds.
        num_rows: Requests that decoded when the gap was set.
    """

    seen_s: float
    gap_s: float
    num_rows: int = 0

    def is_due(self, now_s: float) -> bool:
        """Return whether what is known of it is too old."""
        return now_s - self.seen_s >= self.gap_s

    def after_probe(
        self, gap_max_s: float, now_s: float, num_rows: int, draw: float
    ) -> "ProbeClock":
        """Return it after a trial that changed nothing: the gap doubles, give or take a tenth.

        Replicas that were started together would otherwise probe together.
        """
        gap_s = min(gap_max_s, 2.0 * self.gap_s) * (0.9 + 0.2 * draw)
        return ProbeClock(now_s, gap_s, num_rows)

    def at_once(self, now_s: float) -> "ProbeClock":
        """Return it after a trial that promised much and proved too little: the next is due."""
        return ProbeClock(now_s - self.gap_s, self.gap_s, self.num_rows)

    def at_load(self, num_rows: int, gap_min_s: float) -> "ProbeClock":
        """Return it with the short gap again where the load fell to a quarter since."""
        if num_rows and num_rows * 4 <= self.num_rows:
            return replace(self, gap_s=min(self.gap_s, gap_min_s), num_rows=num_rows)
        return self


def probe_arm(arms: tuple[Arm, ...]) -> Arm:
    """Return the arm to try a drafter with, narrow ones first."""
    narrow = [arm for arm in arms if arm.draft_length <= _PROBE_WIDTH]
    return narrow[-1] if narrow else arms[0]

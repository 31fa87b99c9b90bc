"""A token bucket as a value: exact whole numbers, and the time is an argument."""

from dataclasses import dataclass
from typing import Self

_MINUTE_NS = 60_000_000_000


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """An allowance that refills evenly and never holds more than one minute's worth.

    It may be overdrawn: what a running request uses is known only afterwards, and the debt is
    paid by those that come next.

    Attributes:
        per_minute: Units that come back in a minute, and the most that it holds.
        level: What it held at `at_ns`, in units times the nanoseconds of a minute, so that a
            nanosecond brings back `per_minute` and nothing is ever rounded.
        at_ns: When, on any clock that does not jump.
    """

    per_minute: int
    level: int
    at_ns: int

    @classmethod
    def full(cls, per_minute: int, now_ns: int) -> Self:
        """Return a bucket that holds all it can."""
        return cls(per_minute, per_minute * _MINUTE_NS, now_ns)

    def has(self, cost: int, now_ns: int) -> bool:
        """Return whether it can give so many units now; what it can never hold, when it is full."""
        return self.wait_ns(cost, now_ns) == 0

    def after(self, cost: int, now_ns: int) -> Self:
        """Return the bucket with so many units taken, whether it had them or not."""
        level = self._level(now_ns) - cost * _MINUTE_NS
        # A clock that a caller read too early gives nothing back twice.
        return type(self)(self.per_minute, level, max(now_ns, self.at_ns))

    def remaining(self, now_ns: int) -> int:
        """Return how many whole units it has now; none where it is overdrawn."""
        return max(0, self._level(now_ns) // _MINUTE_NS)

    def wait_ns(self, cost: int, now_ns: int) -> int:
        """Return how long from now until `has` says yes, if nobody takes any meanwhile."""
        missing = min(cost, self.per_minute) * _MINUTE_NS - self._level(now_ns)
        return max(0, -(-missing // self.per_minute))

    def _level(self, now_ns: int) -> int:
        gained = max(0, now_ns - self.at_ns) * self.per_minute
        return min(self.per_minute * _MINUTE_NS, self.level + gained)

"""Two purses: how often the drafter may change, and how much time probes may lose."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Purse:
    """An amount that fills with time and is spent.

    Attributes:
        amount: What is in it; below 0 is a debt.
        most: What it can hold, and the deepest debt.
        at_s: When it was last filled, seconds.
    """

    amount: float
    most: float
    at_s: float = 0.0

    def filled(self, rate: float, now_s: float, most_s: float = float("inf")) -> "Purse":
        """Return it with what has come in since; ``rate`` is per second.

        Args:
            rate: Per second.
            now_s: The time, seconds.
            most_s: Longest time that counts, seconds.
        """
        earned = rate * min(most_s, max(0.0, now_s - self.at_s))
        return replace(self, amount=min(self.most, self.amount + earned), at_s=now_s)

    def spent(self, amount: float) -> "Purse":
        """Return it with less in it. A debt is bounded, so it is always paid back some time."""
        return replace(self, amount=max(-self.most, self.amount - amount))

    def can_pay(self, amount: float) -> bool:
        """Return whether there is enough, or as much as it can ever hold."""
        return self.amount >= min(amount, self.most)

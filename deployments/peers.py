"""Which replicas there are, as ingresses say when they check in."""

from collections.abc import Iterable

# One that answers slowly is left out of a check-in, and is there all the same, seconds.
_REMEMBERED_S = 10.0


class Peers:
    """Remembers names for some check-ins after they were last heard."""

    def __init__(self) -> None:
        """Know nobody."""
        self._heard_s: dict[str, float] = {}

    def note(self, names: Iterable[str], now_s: float) -> None:
        """Take the names of one check-in."""
        kept = {name: self._heard_s[name] for name in self.known(now_s)}
        self._heard_s = {**kept, **dict.fromkeys(names, now_s)}

    def known(self, now_s: float) -> frozenset[str]:
        """Return the names that were heard lately."""
        return frozenset(
            name for name, heard_s in self._heard_s.items() if now_s - heard_s <= _REMEMBERED_S
        )

"""What operators have ordered of the whole application, as it goes round between its processes.

Nobody keeps it alone. Every ingress and every replica holds all of it, and whenever two of them
talk they merge what they hold, so that it outlives any of them and reaches whoever starts later.
"""

from dataclasses import dataclass, field, replace

# Lifted ones count too: they are remembered until they would have expired.
MAX_PINS = 256


@dataclass(frozen=True, slots=True)
class StandingPin:
    """One arm for some replicas, as it was ordered over HTTP.

    Attributes:
        pin_id: Its name.
        arm: ``plain``, or a drafter and a draft length, such as ``mtp:2``.
        replicas: Names of replicas, or ``*`` for all.
        author: Who ordered it.
        why: Why, in the author's words.
        made_at_s: When, seconds since the epoch.
        expires_at_s: When it ends, seconds since the epoch.
        release_drafter: Give the drafters' weights back meanwhile.
        is_lifted: It was taken back. It is kept until it would have expired, or whoever has not
            heard of it would bring it back.
    """

    pin_id: str
    arm: str
    replicas: tuple[str, ...]
    author: str
    why: str
    made_at_s: float
    expires_at_s: float
    release_drafter: bool = False
    is_lifted: bool = False


@dataclass(frozen=True, slots=True)
class DrainWord:
    """Whether new work is refused. Of two words the later counts.

    Attributes:
        said_at_s: When, seconds since the epoch; 0 where nobody said anything.
        is_on: Whether it is.
        author: Who said it.
    """

    said_at_s: float = 0.0
    is_on: bool = False
    author: str = ""


@dataclass(frozen=True, slots=True)
class Orders:
    """All that is ordered. Replaced whole.

    Attributes:
        pins: The oldest first, lifted ones included.
        drain: Whether new work is refused.
    """

    pins: tuple[StandingPin, ...] = ()
    drain: DrainWord = field(default_factory=DrainWord)

    def merged(self, other: "Orders", now_s: float) -> "Orders":
        """Return what both know; the same whoever merges whom, and however often.

        Args:
            other: What another process holds.
            now_s: Pins that have expired by then are forgotten, seconds since the epoch.
        """
        found: dict[str, StandingPin] = {}
        for pin in (*self.pins, *other.pins):
            if pin.expires_at_s > now_s:
                known = found.get(pin.pin_id, pin)
                found[pin.pin_id] = replace(pin, is_lifted=pin.is_lifted or known.is_lifted)
        pins = sorted(found.values(), key=lambda pin: (pin.made_at_s, pin.pin_id))
        return Orders(tuple(pins), max(self.drain, other.drain, key=_rank))

    def with_pin(self, pin: StandingPin) -> "Orders":
        """Return it with a pin more."""
        return replace(self, pins=(*self.pins, pin))

    def without_pin(self, pin_id: str) -> "Orders":
        """Return it with a pin lifted."""
        pins = (replace(p, is_lifted=p.is_lifted or p.pin_id == pin_id) for p in self.pins)
        return replace(self, pins=tuple(pins))

    def live_pins(self, now_s: float) -> tuple[StandingPin, ...]:
        """Return the pins that hold, the oldest first.

        Args:
            now_s: The time, seconds since the epoch.
        """
        return tuple(pin for pin in self.pins if not pin.is_lifted and pin.expires_at_s > now_s)


def _rank(word: DrainWord) -> tuple[float, bool, str]:
    """Return what orders two words, so that everybody picks the same of two said at once."""
    return word.said_at_s, word.is_on, word.author

"""A pin as an operator writes it under `user_config.pins`."""

import re
from dataclasses import dataclass
from datetime import datetime

from dflash.errors import ConfigError
from policy.arms import PLAIN, PLAIN_ARM, Arm
from policy.pins import ALL_REPLICAS, Pin

_REPLICA = re.compile(r"[A-Za-z0-9][A-Za-z0-9._#-]*")
_ARM = re.compile(
    rf"(?P<plain>{PLAIN})|(?P<drafter>[a-z][a-z0-9_-]*):(?P<length>[1-9][0-9]{{0,3}})"
)


def arm_from(text: str) -> Arm | None:
    """Return the arm that a text such as ``mtp:2`` names; None where it names none."""
    parts = _ARM.fullmatch(text)
    if parts is None:
        return None
    return PLAIN_ARM if parts["plain"] else Arm(parts["drafter"], int(parts["length"]))


@dataclass(frozen=True, slots=True)
class PinOrder:
    """One arm for some replicas, until a time. Of two for the same replica the later one counts.

    Attributes:
        arm: ``plain``, or a drafter and a draft length, such as ``dflash2:7``.
        replicas: Names of replicas, or ``*`` alone for all.
        author: Who is answerable for it.
        reason: Why.
        expires: When it ends: ISO 8601 with a time zone.
    """

    arm: str = ""
    replicas: tuple[str, ...] = ()
    author: str = ""
    reason: str = ""
    expires: str = ""

    def __post_init__(self) -> None:
        for name, wanted in _WANTED.items():
            value = getattr(self, name)
            if not (value.strip() if isinstance(value, str) else value):
                raise ConfigError(f"pins.{name} is missing; say {wanted}")
        if arm_from(self.arm) is None:
            raise ConfigError(f"pins.arm is {self.arm!r}, which is none; say {_WANTED['arm']}")
        for replica in self.replicas:
            if replica != ALL_REPLICAS and not _REPLICA.fullmatch(replica):
                raise ConfigError(
                    f"pins.replicas has {replica!r}, which is no replica's name; "
                    f"say {_WANTED['replicas']}"
                )
        if _when(self.expires) is None:
            raise ConfigError(
                f"pins.expires is {self.expires!r}, which is no time with a zone; "
                f"say {_WANTED['expires']}"
            )

    @property
    def expires_at(self) -> datetime:
        """When it ends."""
        at = _when(self.expires)
        assert at is not None, "it was checked when this was made"
        return at

    def pin(self, expires_s: float) -> Pin:
        """Return it as the policy knows it.

        Args:
            expires_s: When it ends, on the clock of the signals, seconds.
        """
        arm = arm_from(self.arm)
        assert arm is not None, "it was checked when this was made"
        return Pin(arm, self.replicas, self.author, self.reason, expires_s)


_WANTED = {
    "arm": f"'{PLAIN}', or a drafter and a draft length, such as 'dflash2:7'",
    "replicas": f"which by their names, or '{ALL_REPLICAS}' for all",
    "author": "who is answerable for it",
    "reason": "why, for whoever reads the log",
    "expires": "when it ends, such as '2027-01-31T18:00:00Z'",
}


def _when(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else None

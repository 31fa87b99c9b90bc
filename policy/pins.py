"""An operator's order, which overrides the law until it expires."""

from collections.abc import Collection
from dataclasses import dataclass

from policy.arms import PLAIN, Arm, Ladder
from policy.errors import PolicyError

ALL_REPLICAS = "*"


@dataclass(frozen=True, slots=True)
class Pin:
    """One arm for some replicas.

    Memory, a drafter that is not loaded and a request's own ceiling still win: a pin is a wish for
    speed, never a reason to fail.

    Attributes:
        arm: What to run.
        replicas: Names of replicas, or ``*`` for all.
        author: Who pinned it.
        reason: Why, in the author's words.
        expires_s: When it ends, on the clock of the signals, seconds.
        release_drafter: Give the drafters' weights back meanwhile; for plain decoding alone.
    """

    arm: Arm
    replicas: tuple[str, ...]
    author: str
    reason: str
    expires_s: float
    release_drafter: bool = False

    def __post_init__(self) -> None:
        for name in ("replicas", "author", "reason"):
            if not getattr(self, name):
                raise PolicyError(f"pin.{name} is empty; say {_WANTED[name]}")
        if self.release_drafter and not self.arm.is_plain:
            raise PolicyError(
                f"pin.release_drafter goes with arm {PLAIN!r} alone, and this one is "
                f"{self.arm.name}, which drafts; leave it out, or pin {PLAIN!r}"
            )

    def holds_for(self, replica: str, now_s: float) -> bool:
        """Return whether a replica has to obey it now."""
        return now_s < self.expires_s and (
            ALL_REPLICAS in self.replicas or replica in self.replicas
        )

    def check(self, ladder: Ladder, replicas: Collection[str], now_s: float) -> None:
        """Check it against what there is.

        Raises:
            PolicyError: Its arm or a replica is unknown, or it is over already.
        """
        if not self.arm.is_plain:
            lengths = ladder.rungs_of(self.arm.drafter).draft_lengths
            if self.arm.draft_length not in lengths:
                raise PolicyError(
                    f"pin.arm {self.arm.name} has no such rung; {self.arm.drafter} has {lengths}"
                )
        for replica in self.replicas:
            if replica != ALL_REPLICAS and replica not in replicas:
                raise PolicyError(
                    f"pin.replicas names {replica!r}, which is unknown; "
                    f"there are {sorted(replicas)}, or {ALL_REPLICAS!r} for all"
                )
        if self.expires_s <= now_s:
            raise PolicyError(
                f"pin.expires_s is {self.expires_s:g}, but it is {now_s:g} already; give a later"
            )


_WANTED = {
    "replicas": f"which, or {ALL_REPLICAS!r} for all",
    "author": "who is answerable for it",
    "reason": "why, for whoever reads the log",
}


def pin_in_force(pins: Collection[Pin], replica: str, now_s: float) -> Pin | None:
    """Return the newest pin that a replica has to obey; None where the law decides."""
    holding = [pin for pin in pins if pin.holds_for(replica, now_s)]
    return holding[-1] if holding else None

"""The bounds an operator sets. Every default is a bound that the law was simulated with."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise

from policy.arms import Ladder
from policy.errors import PolicyError

# Largest values by how a field's name ends. A level is left where twice as much memory is free as
# it is entered at, which a fraction of a half would never let happen.
_BOUNDS = {"occupancy": 1.0, "free_fraction": 0.4, "_s": float("inf")}


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """When memory is short, and when it no longer is. Up and down differ, so nothing flutters.

    Attributes:
        amber_occupancy: Share of pages in use from which drafts are narrowed to what is free.
        green_occupancy: That ends below this.
        amber_free_fraction: Share of device memory that must be free, or drafts are narrowed.
        red_free_fraction: Share that must be free, or nothing is drafted.
        escalate_s: Seconds of pressure before the next release.
        restore_s: Seconds of calm before context pages or weights come back; the rest follows
            within seconds while it stays calm.
    """

    amber_occupancy: float = 0.90
    green_occupancy: float = 0.80
    amber_free_fraction: float = 0.02
    red_free_fraction: float = 0.005
    escalate_s: float = 30.0
    restore_s: float = 60.0

    def __post_init__(self) -> None:
        _check_ascending(
            "policy.memory",
            green_occupancy=self.green_occupancy,
            amber_occupancy=self.amber_occupancy,
        )
        _check_ascending(
            "policy.memory",
            red_free_fraction=self.red_free_fraction,
            amber_free_fraction=self.amber_free_fraction,
        )
        for item in fields(self):
            bound = next(most for end, most in _BOUNDS.items() if item.name.endswith(end))
            _check_range(f"policy.memory.{item.name}", getattr(self, item.name), bound)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the policy must stay within.

    Attributes:
        max_concurrency: Most requests decoding at which a drafter may run, by drafter.
        max_draft_length: Most draft tokens for any request; None leaves it to the drafters.
        dwell_s: Least time between two voluntary changes of drafter, seconds.
        switches_per_minute: Most changes to a drafter that takes longer steps.
        exploration_share: Share of busy time that probes may lose.
        probe_gap_s: Shortest time between two probes of the same idle drafter, seconds.
        probe_gap_max_s: Longest; it doubles in between while probes change nothing.
        memory: When memory counts as short.
    """

    max_concurrency: Mapping[str, int] = field(default_factory=dict)
    max_draft_length: int | None = None
    dwell_s: float = 2.0
    switches_per_minute: float = 6.0
    exploration_share: float = 0.005
    probe_gap_s: float = 4.0
    probe_gap_max_s: float = 30.0
    memory: MemoryLimits = field(default_factory=MemoryLimits)

    def __post_init__(self) -> None:
        for drafter, most in self.max_concurrency.items():
            if most < 0:
                raise PolicyError(
                    f"policy.max_concurrency.{drafter} must be 0 or more, got {most}; "
                    "leave it out for no limit"
                )
        if self.max_draft_length is not None and self.max_draft_length < 0:
            raise PolicyError(
                f"policy.max_draft_length must be 0 or more, got {self.max_draft_length}; "
                "0 never drafts, null leaves it to the drafters"
            )
        for name in ("dwell_s", "switches_per_minute", "probe_gap_s", "probe_gap_max_s"):
            _check_range(f"policy.{name}", getattr(self, name), float("inf"))
        _check_range("policy.exploration_share", self.exploration_share, 0.2)
        if self.probe_gap_max_s < self.probe_gap_s:
            raise PolicyError(
                f"policy.probe_gap_max_s is {self.probe_gap_max_s:g}, below policy.probe_gap_s "
                f"{self.probe_gap_s:g}; raise the first or lower the second"
            )

    def check_ladder(self, ladder: Ladder) -> None:
        """Check the limits against the drafters that are there.

        Raises:
            PolicyError: A limit names an unknown drafter, or a lighter drafter would have to stop
                before a heavier one.
        """
        for drafter in self.max_concurrency:
            if drafter not in ladder.names:
                raise PolicyError(
                    f"policy.max_concurrency names {drafter!r}, which is not here; "
                    f"there are {list(ladder.names)}"
                )
        limited = [name for name in ladder.names if name in self.max_concurrency]
        for heavy, light in pairwise(limited):
            if self.max_concurrency[light] < self.max_concurrency[heavy]:
                raise PolicyError(
                    f"policy.max_concurrency.{light} is {self.max_concurrency[light]}, below "
                    f"{heavy}'s {self.max_concurrency[heavy]}, so {heavy} could not fall back "
                    f"to {light}; raise it to {self.max_concurrency[heavy]} or more"
                )


def _check_range(name: str, value: float, most: float) -> None:
    """Refuse what is not over 0 and up to a bound; not-a-number is refused with the rest."""
    if not 0.0 < value <= most or value == float("inf"):
        upper = "" if most == float("inf") else f" and at most {most:g}"
        raise PolicyError(
            f"{name} must be over 0{upper}, got {value:g}; leave it out for a default"
        )


def _check_ascending(prefix: str, **values: float) -> None:
    for low, high in pairwise(values):
        if not values[low] < values[high]:
            raise PolicyError(
                f"{prefix}.{low} is {values[low]:g} and {prefix}.{high} is {values[high]:g}; "
                f"{low} must be the smaller, or the policy would flutter between them"
            )

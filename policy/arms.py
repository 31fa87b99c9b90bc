"""What there is to choose from: a drafter and a draft length, and the ladder of them."""

from dataclasses import dataclass

from policy.errors import PolicyError

PLAIN = "plain"


@dataclass(frozen=True, slots=True, order=True)
class Arm:
    """One way to decode.

    Attributes:
        drafter: Name of the drafter, or ``plain``.
        draft_length: Draft tokens verified for each request; 0 for plain and nothing else.
    """

    drafter: str = PLAIN
    draft_length: int = 0

    def __post_init__(self) -> None:
        if (self.drafter == PLAIN) != (self.draft_length == 0) or self.draft_length < 0:
            raise PolicyError(
                f"arm {self.drafter!r} has draft length {self.draft_length}; "
                f"{PLAIN!r} goes with 0, a drafter with 1 or more"
            )

    @property
    def is_plain(self) -> bool:
        """Whether nothing is drafted."""
        return self.draft_length == 0

    @property
    def name(self) -> str:
        """Text for logs and keys, such as ``dflash2:7``."""
        return PLAIN if self.is_plain else f"{self.drafter}:{self.draft_length}"


PLAIN_ARM = Arm()


@dataclass(frozen=True, slots=True)
class Rungs:
    """The draft lengths of one drafter.

    Attributes:
        drafter: Its name.
        draft_lengths: Ascending. The last is its full width.
        max_context_tokens: Longest request it was trained for; None where it does not matter.
    """

    drafter: str
    draft_lengths: tuple[int, ...]
    max_context_tokens: int | None = None

    def __post_init__(self) -> None:
        lengths = self.draft_lengths
        if not lengths or lengths[0] < 1 or list(lengths) != sorted(set(lengths)):
            raise PolicyError(
                f"draft_lengths of {self.drafter!r} must ascend from 1 or more, got {lengths}; "
                "try (1, 3, 5, 7)"
            )


@dataclass(frozen=True, slots=True)
class Ladder:
    """Every drafter of a replica.

    Attributes:
        drafters: The one that takes most memory first; plain decoding is below the last.
    """

    drafters: tuple[Rungs, ...] = ()

    def __post_init__(self) -> None:
        names = [rungs.drafter for rungs in self.drafters]
        if len(set(names)) != len(names) or PLAIN in names:
            raise PolicyError(
                f"ladder names {names}; name each drafter once and leave out {PLAIN!r}"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the drafters, in their order."""
        return tuple(rungs.drafter for rungs in self.drafters)

    def rungs_of(self, drafter: str) -> Rungs:
        """Return a drafter's rungs.

        Raises:
            PolicyError: There is no such drafter.
        """
        for rungs in self.drafters:
            if rungs.drafter == drafter:
                return rungs
        raise PolicyError(f"drafter {drafter!r} is not here; there are {[*self.names, PLAIN]}")

    def arms_of(self, drafter: str, max_draft_length: int) -> tuple[Arm, ...]:
        """Return a drafter's arms, narrow ones first, none over a draft length."""
        lengths = self.rungs_of(drafter).draft_lengths
        return tuple(Arm(drafter, length) for length in lengths if length <= max_draft_length)

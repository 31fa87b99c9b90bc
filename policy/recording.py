"""Everything that decisions looked at, as lines, and the same decisions made from them again."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256

from policy.arms import Arm
from policy.controller import decide
from policy.decision import Decision
from policy.errors import PolicyError
from policy.header import FileKind, header_from, line_as
from policy.json_form import as_json
from policy.reasons import Reason
from policy.signals import Signals
from policy.terms import Terms

# A line begins with the name of its first value, which tells the two kinds apart.
_START_PREFIX = '{"terms":'


@dataclass(frozen=True, slots=True)
class Start:
    """Where a run of decisions begins; what follows needs nothing from before it.

    The terms stand first in a file, again where a reload replaced them, and wherever a line is
    missing before the next.

    Attributes:
        terms: Drafters, step times and limits.
        last: The decision in force.
    """

    terms: Terms
    last: Decision


@dataclass(frozen=True, slots=True)
class Recorded:
    """One decision as it was made.

    Attributes:
        signals: All it looked at.
        arm: What it chose.
        reason: Why.
        digest: Of the whole decision, what was learnt included.
    """

    signals: Signals
    arm: Arm
    reason: Reason
    digest: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """One decision made again.

    Attributes:
        line: Its line in the file, from 1.
        recorded: What was decided then.
        decision: What is decided now.
        digest: Of that.
    """

    line: int
    recorded: Recorded
    decision: Decision
    digest: str

    @property
    def is_same(self) -> bool:
        """Whether both are the same to the bit."""
        return self.recorded.digest == self.digest


def recorded(signals: Signals, decision: Decision) -> Recorded:
    """Return the record of a decision."""
    return Recorded(signals, decision.plan.arm, decision.reason, digest_of(decision))


def digest_of(decision: Decision) -> str:
    """Return what no other decision shares."""
    return sha256(as_json(decision).encode()).hexdigest()[:32]


def replay(lines: Iterable[str]) -> Iterator[Replayed]:
    """Yield every decision of a signals file, made again.

    Each is made from the one before it as it is made now, so a difference may bring on others.

    Args:
        lines: The lines of the file, header first.

    Raises:
        PolicyError: A line is not what this version writes; the message has its number.
    """
    numbered = enumerate(lines, start=1)
    _, first = next(numbered, (1, None))
    header_from(first, FileKind.SIGNALS)
    start: Start | None = None
    for number, line in numbered:
        value = line_as(Start if line.startswith(_START_PREFIX) else Recorded, line, number)
        if isinstance(value, Start):
            start = value
            continue
        if start is None:
            raise PolicyError(
                f"line {number}: signals before any terms; give the file from its first line on"
            )
        try:
            decision = decide(start.last, value.signals, start.terms)
            digest = digest_of(decision)
        # Lines that contradict each other were not written so.
        except (ArithmeticError, LookupError, ValueError) as error:
            raise PolicyError(
                f"line {number}: no decision comes of it ({error!r}); "
                "read a file as a replica wrote it"
            ) from error
        start = Start(start.terms, decision)
        yield Replayed(number, value, decision, digest)

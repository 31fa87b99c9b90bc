"""The first line of a file that the policy's values are kept in: what it holds, and for whom."""

import json
from dataclasses import dataclass
from enum import StrEnum

from policy.errors import PolicyError
from policy.json_form import Value, as_json, from_json

# Raised when a line written before would mean something else, or nothing, now.
VERSION = 1


class FileKind(StrEnum):
    """What the lines after the header are.

    ``dflash-signals``: all that decisions looked at, to decide again.
    ``dflash-decisions``: changes of plan, to read.
    """

    SIGNALS = "dflash-signals"
    DECISIONS = "dflash-decisions"


_READERS = {
    FileKind.SIGNALS: "dflashctl replay",
    FileKind.DECISIONS: "dflashctl explain",
}


@dataclass(frozen=True, slots=True)
class Header:
    """What a reader has to know before the second line.

    Attributes:
        format: What the file holds.
        version: Of the lines.
        replica: Whose decisions they are.
        clock_offset_s: Seconds since the epoch less the time of the signals, to tell the hour.
    """

    format: FileKind
    version: int
    replica: str
    clock_offset_s: float

    def line(self) -> str:
        """Return it as a line."""
        return as_json(self) + "\n"


def header_from(line: str | None, wanted: FileKind) -> Header:
    """Return the header that a file begins with.

    Args:
        line: The first line; None where there is none.
        wanted: What the reader can read.

    Raises:
        PolicyError: The file is empty, holds something else, or another version of it.
    """
    if line is None:
        raise PolicyError("the file is empty; give one that a replica has written to")
    try:
        found = json.loads(line)
        kind, version = FileKind(found["format"]), found["version"]
    except (ValueError, TypeError, KeyError) as error:
        raise PolicyError(
            f"line 1: {line[:60].rstrip()!r} is no header of a {wanted} file; "
            "give a whole file that a replica wrote, from its first line on"
        ) from error
    if kind is not wanted:
        raise PolicyError(f"line 1: this is a {kind} file; {_READERS[kind]!r} reads it")
    if version != VERSION:
        raise PolicyError(
            f"line 1: version {version!r} of {kind}, but this reads version {VERSION}; "
            "use the release that wrote it"
        )
    return from_json(Header, line)


def line_as(kind: type[Value], line: str, number: int) -> Value:
    """Return the value that a line of a file was written from.

    Raises:
        PolicyError: It is no such line; the message has its number and what to do about it.
    """
    try:
        return from_json(kind, line)
    except PolicyError as error:
        raise PolicyError(
            f"line {number}: {error}, or cut this one off before that line: head -n {number - 1}"
        ) from error

"""Calls of tools in an answer's text, in Qwen3's form, found piece by piece.

A call is ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``. The name goes out as soon as
it is certain, then the arguments as they come. What looks like a call and is none stays text,
unchanged, and how the text was cut into pieces changes nothing of it.
"""

import json
import re
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

from deployments.openai.text import overlap

BEGIN: Final = "<tool_call>"
END: Final = "</tool_call>"

_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"\\]*)"\s*,\s*"arguments"\s*:\s*(?=\{)')


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of a call.

    Attributes:
        index: Of the call in its answer.
        arguments: What it adds to the arguments' JSON.
        call_id: In its first piece.
        name: In its first piece.
    """

    index: int
    arguments: str = ""
    call_id: str | None = None
    name: str | None = None


class Found(NamedTuple):
    """What a piece of text came to: text to show, and pieces of calls."""

    text: str
    calls: tuple[CallDelta, ...] = ()


def new_call_id() -> str:
    """Return an id for a call."""
    return f"call_{uuid.uuid4().hex[:24]}"


@dataclass(slots=True)
class _JsonObject:
    """Follows one JSON object to its end, without reading it."""

    depth: int = 0
    is_in_string: bool = False
    is_escaped: bool = False

    def take(self, text: str) -> tuple[int, bool]:
        """Return how many characters belong to it, and whether the next cannot be JSON."""
        for place, character in enumerate(text):
            if self.is_in_string:
                if character < " ":
                    return place, True
                self._in_string(character)
            elif character == "<":
                return place, True
            else:
                self._outside(character)
                if self.depth == 0:
                    return place + 1, False
        return len(text), False

    def _in_string(self, character: str) -> None:
        if self.is_escaped:
            self.is_escaped = False
        elif character == "\\":
            self.is_escaped = True
        elif character == '"':
            self.is_in_string = False

    def _outside(self, character: str) -> None:
        if character == '"':
            self.is_in_string = True
        elif character in "{[":
            self.depth += 1
        elif character in "}]":
            self.depth -= 1


@dataclass(slots=True)
class CallReader:
    """Tells text from calls in one answer.

    White space right before and after a call is part of its frame, and no text.

    Attributes:
        names: Functions that can be called; a call of another is text.
        most_calls: After so many the answer is over; None for any number.
        num_calls: Calls that have begun.
    """

    names: Collection[str]
    most_calls: int | None = None
    new_id: Callable[[], str] = new_call_id
    num_calls: int = field(default=0, init=False)
    _held: str = field(default="", init=False)
    _read: Callable[[bool], Found | None] = field(init=False)
    _object: _JsonObject = field(default_factory=_JsonObject, init=False)
    _num_closed: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._read = self._text

    @property
    def is_full(self) -> bool:
        """Whether the last call that may come is complete."""
        return self._num_closed == self.most_calls

    def push(self, text: str, *, is_end: bool = False) -> Found:
        """Take more text and return what is now certain; at the end, all of it."""
        self._held += text
        shown: list[str] = []
        calls: list[CallDelta] = []
        while not self.is_full and (found := self._read(is_end)) is not None:
            shown.append(found.text)
            calls.extend(found.calls)
        return Found("".join(shown), tuple(calls))

    def _text(self, is_end: bool) -> Found | None:
        """Show text up to where a call may begin."""
        begin = self._held.find(BEGIN)
        if begin >= 0:
            self._read = self._head
            return self._show(len(self._held[:begin].rstrip()))
        if is_end:
            is_frame = self.num_calls > 0 and self._held.isspace()
            shown, self._held = "" if is_frame else self._held, ""
            return Found(shown) if shown else None
        num_shown = len(self._held) - overlap(self._held, BEGIN)
        num_shown = len(self._held[:num_shown].rstrip())
        return self._show(num_shown) if num_shown else None

    def _head(self, is_end: bool) -> Found | None:
        """Find out whether a call begins here, and of what."""
        start = self._held.find(BEGIN) + len(BEGIN)
        end = self._held.find(END, start)
        body = self._held[start:] if end < 0 else self._held[start:end]
        head = _HEAD.match(body)
        if head is not None and head[1] in self.names:
            self._held = self._held[start + head.end() :]
            self._read, self._object = self._arguments, _JsonObject()
            return self._begin(head[1])
        if end < 0 and not is_end:
            return None
        call = _whole_call(body, self.names)
        if call is None:
            self._read = self._text
            return self._show(start)
        self._held = "" if end < 0 else self._held[end + len(END) :]
        self._close()
        return self._begin(*call)

    def _arguments(self, is_end: bool) -> Found | None:
        """Pass arguments on to the end of their object, or to what cannot be JSON."""
        num_taken, is_broken = self._object.take(self._held)
        if is_broken:
            self._read = self._broken_arguments
        elif num_taken and self._object.depth == 0:
            self._read = self._tail
        elif not num_taken:
            return None
        return self._pass_on(num_taken)

    def _broken_arguments(self, is_end: bool) -> Found | None:
        """Pass on what is no JSON as it is: its client has the beginning already."""
        end = self._held.find(END)
        if end >= 0:
            found = self._pass_on(end)
            self._held = self._held[len(END) :]
            self._close()
            return found
        num_certain = len(self._held) - (0 if is_end else overlap(self._held, END))
        return self._pass_on(num_certain) if num_certain else None

    def _tail(self, is_end: bool) -> Found | None:
        """Leave out what closes a call."""
        _, tag, rest = self._held.partition(END)
        if not tag:
            self._held = self._held[len(self._held) - overlap(self._held, END) :]
            return None
        self._held = rest
        self._close()
        return Found("")

    def _show(self, num_characters: int) -> Found:
        shown, self._held = self._held[:num_characters], self._held[num_characters:]
        return Found(shown)

    def _begin(self, name: str, arguments: str = "") -> Found:
        self.num_calls += 1
        return Found("", (CallDelta(self.num_calls - 1, arguments, self.new_id(), name),))

    def _pass_on(self, num_characters: int) -> Found:
        arguments, self._held = self._held[:num_characters], self._held[num_characters:]
        return Found("", (CallDelta(self.num_calls - 1, arguments),) if arguments else ())

    def _close(self) -> None:
        self._num_closed += 1
        self._read = self._text


def _whole_call(body: str, names: Collection[str]) -> tuple[str, str] | None:
    """Return name and arguments of a call in another order than usual; None where it is none."""
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    call = cast("dict[str, Any]", value)
    name, arguments = call.get("name"), call.get("arguments", {})
    if not isinstance(name, str) or name not in names or not isinstance(arguments, dict):
        return None
    return name, json.dumps(arguments, ensure_ascii=False)

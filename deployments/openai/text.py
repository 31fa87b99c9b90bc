"""From token ids to text as they come: whole characters only, and never past a stop string."""

import codecs
from collections.abc import Callable, Sequence
from typing import Protocol


class TextStream(Protocol):
    """Turns the ids of one choice into text piece by piece.

    All pieces together are the tokenizer's text of all ids, however the ids were grouped.
    """

    def push(self, token_ids: Sequence[int]) -> str:
        """Take more ids and return the text that is now certain."""
        ...

    def flush(self) -> str:
        """Return what was held back; nothing follows."""
        ...


class ByteTextStream:
    """For byte-level vocabularies: a token is bytes, and text is their UTF-8.

    The decoder keeps the bytes of an unfinished character, so no piece ends inside one.
    """

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        self._bytes_of = bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_ids: Sequence[int]) -> str:
        """Take more ids and return the text that is now certain."""
        return self._decoder.decode(b"".join(map(self._bytes_of, token_ids)))

    def flush(self) -> str:
        """Return a replacement character for an unfinished one."""
        return self._decoder.decode(b"", True)


class WindowTextStream:
    """For vocabularies whose text depends on neighbours: SentencePiece with byte fallback.

    A run of byte tokens becomes text only as a whole (one invalid byte spoils all of it), so a
    run is held until it ends. Special tokens have no text and end no run. Text after it is the
    difference of two decodings that share a left context, because a decoder strips a space at
    the very start.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], open_ids: frozenset[int]) -> None:
        """Begin an answer.

        Args:
            decode: The tokenizer's text of ids.
            open_ids: Byte tokens and special tokens: after these a run may go on.
        """
        self._decode = decode
        self._open_ids = open_ids
        self._context: list[int] = []
        self._held: list[int] = []

    def push(self, token_ids: Sequence[int]) -> str:
        """Take more ids and return the text that is now certain."""
        # A run at the end may be joined by what comes next: all before it is certain.
        self._held.extend(token_ids)
        num_certain = len(self._held)
        while num_certain and self._held[num_certain - 1] in self._open_ids:
            num_certain -= 1
        return self._release(num_certain) if num_certain else ""

    def flush(self) -> str:
        """Return what was held back; nothing follows."""
        return self._release(len(self._held)) if self._held else ""

    def _release(self, num_ids: int) -> str:
        taken, self._held = self._held[:num_ids], self._held[num_ids:]
        text = self._decode([*self._context, *taken])[len(self._decode(self._context)) :]
        # Ids without text (special tokens) are no left context: the space after them would go.
        self._context = taken if text else [*self._context, *taken]
        return text


class StopStrings:
    """Finds the first stop string in a stream of text, holding back only what might become one.

    First means completed first; among those completed by the same character, the longest. So
    the cut does not depend on how the text was grouped.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held: str = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Take more text; return what may be shown, and whether a stop string ended it."""
        if not self._stops:
            return text, False
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self._held = ""
            return text[: min(found)[1]], True
        num_held = max(overlap(text, stop) for stop in self._stops)
        shown = len(text) - num_held
        self._held = text[shown:]
        return text[:shown], False

    def flush(self) -> str:
        """Return what was held back; nothing follows."""
        held, self._held = self._held, ""
        return held


def overlap(text: str, stop: str) -> int:
    """Return the length of the longest tail of the text that a stop string begins with."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0

"""A grammar as a client gives it: a plain value that crosses processes."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dflash.errors import RequestError

MAX_GRAMMAR_CHARACTERS: Final = 128 * 1024


class GrammarKind(StrEnum):
    """How the text of a grammar is read."""

    JSON_SCHEMA = "json_schema"
    TAGGED_JSON = "tagged_json"


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an output must match from its first token to its end.

    Attributes:
        kind: How ``text`` is read.
        text: A JSON Schema as JSON, or `dflash.grammar.tagged.TaggedJson` as JSON.
        field: What the client calls it; errors name it.
    """

    kind: GrammarKind
    text: str
    field: str

    def __post_init__(self) -> None:
        if len(self.text) > MAX_GRAMMAR_CHARACTERS:
            raise RequestError(
                f"{self.field} has {len(self.text)} characters as JSON; a grammar can have "
                f"{MAX_GRAMMAR_CHARACTERS}: leave out descriptions, or split the task",
                self.field,
            )

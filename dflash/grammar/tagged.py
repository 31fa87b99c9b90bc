"""JSON between two tags, alone or within free text: what calls of tools look like."""

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TaggedJson:
    """An output of JSON texts between tags; a value that a `Grammar` carries as its text.

    Attributes:
        begin: What stands before each JSON text.
        end: What stands behind it.
        padding: What stands between a tag and its JSON.
        schema: What each JSON text must be.
        between: What stands between two of them; None allows one only. Free text needs none.
        is_free: Whether other text may stand around them, and whether there may be none of them.
    """

    begin: str
    end: str
    padding: str
    schema: dict[str, Any]
    between: str | None
    is_free: bool

    @classmethod
    def read(cls, text: str) -> "TaggedJson":
        """Return what `written` has written."""
        return cls(**json.loads(text))

    def written(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

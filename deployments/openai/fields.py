"""Kinds of fields that several request bodies share."""

from typing import Annotated

from pydantic import AfterValidator


def whole_text(text: str) -> str:
    """Return the text if UTF-8 can carry it: JSON escapes can spell half a character."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"character {error.start} is half a pair (a lone surrogate)") from error
    return text


Text = Annotated[str, AfterValidator(whole_text)]

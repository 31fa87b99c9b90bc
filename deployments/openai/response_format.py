"""`response_format`: text, any JSON object, or JSON that matches a schema."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from deployments.openai import errors
from deployments.openai.errors import RefusedError
from deployments.openai.fields import Text
from dflash.grammar.text import Grammar, GrammarKind

FIELD = "response_format"
_ANY_OBJECT = {"type": "object"}


class SchemaFormat(BaseModel):
    """A JSON Schema under a name.

    It is enforced whether ``strict`` or not: what cannot be enforced is refused, not ignored.
    """

    model_config = ConfigDict(strict=True, extra="ignore")

    name: Text | None = None
    description: Text | None = None
    # Pydantic's own models have a `schema`.
    json_schema: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool | None = None


class ResponseFormat(BaseModel):
    """What the answer's text must be."""

    # A slip in here would leave the answer free.
    model_config = ConfigDict(strict=True, extra="forbid")

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None


def grammar_of(given: ResponseFormat | None) -> Grammar | None:
    """Return what the answer must match; None where it is free text.

    Raises:
        RefusedError: The schema is missing, or stands beside another type.
        RequestError: It is too long.
    """
    if given is None:
        return None
    if (given.json_schema is None) is (given.type == "json_schema"):
        state = "missing" if given.json_schema is None else f"of no use to type {given.type!r}"
        param = f"{FIELD}.json_schema"
        raise RefusedError(errors.invalid_parameter(param, f"{param} is {state}"))
    if given.type == "text":
        return None
    schema = given.json_schema.json_schema if given.json_schema else _ANY_OBJECT
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema), FIELD)

"""`tools` and `tool_choice`: what a model may call, in its template's words, and what it must."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field

from deployments.openai import errors
from deployments.openai.errors import RefusedError
from deployments.openai.fields import Text
from deployments.openai.tool_calls import BEGIN, END
from dflash.grammar.tagged import TaggedJson
from dflash.grammar.text import Grammar, GrammarKind

MAX_TOOLS = 128
FIELD = "tools"
# Between a tag and its JSON, and between two calls.
_BREAK = "\n"
_ANY_ARGUMENTS: Mapping[str, Any] = {"type": "object"}

# What a name may be written with can stand in a call's JSON as it is.
FunctionName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


class Function(BaseModel):
    """A function that the model may call.

    Its ``parameters`` are a JSON Schema of the arguments; none is any object. They are enforced
    where it is ``strict``, and where a call is forced.
    """

    model_config = ConfigDict(strict=True, extra="ignore")

    name: FunctionName
    description: Text | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(BaseModel):
    """A tool, which is always a function."""

    model_config = ConfigDict(strict=True, extra="ignore")

    type: Literal["function"]
    function: Function


class NamedFunction(BaseModel):
    """The name of a function."""

    model_config = ConfigDict(strict=True, extra="ignore")

    name: FunctionName


class NamedTool(BaseModel):
    """The one tool that must be called."""

    model_config = ConfigDict(strict=True, extra="ignore")

    type: Literal["function"]
    function: NamedFunction


ToolsField = Annotated[list[Tool], Field(max_length=MAX_TOOLS)]
ToolChoice = Literal["none", "auto", "required"] | NamedTool


def tools_in_use(tools: Sequence[Tool] | None, choice: ToolChoice | None) -> tuple[Function, ...]:
    """Return the functions that the model is shown; none where nothing is to be called.

    Raises:
        RefusedError: Two have one name, or the choice is of a function that is not among them.
    """
    names = [tool.function.name for tool in tools or ()]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise RefusedError(
            errors.invalid_parameter(FIELD, f"tools: two functions are named {min(twice)!r}")
        )
    if isinstance(choice, NamedTool) and choice.function.name not in names:
        known = ", ".join(map(repr, names)) or "none"
        raise RefusedError(
            errors.invalid_parameter(
                "tool_choice",
                f"tool_choice: there is no function {choice.function.name!r} in tools, which "
                f"has {known}",
            )
        )
    if choice == "required" and not names:
        raise RefusedError(
            errors.invalid_parameter("tool_choice", "tool_choice is 'required' and tools is empty")
        )
    return () if choice == "none" else tuple(tool.function for tool in tools or ())


def template_tools(functions: Sequence[Function]) -> list[dict[str, Any]]:
    """Return the functions as chat templates know them."""
    return [
        {
            "type": "function",
            "function": function.model_dump(exclude_none=True, exclude={"strict"}),
        }
        for function in functions
    ]


def grammar_of_calls(
    functions: Sequence[Function], choice: ToolChoice | None, *, are_parallel: bool
) -> Grammar | None:
    """Return what an answer with these functions must match; None where it is free.

    A forced call is all of the answer. Where none is forced, any text may come, but what begins
    like a call is one: of a strict function with arguments of its schema.

    Raises:
        RequestError: The schemas are too long.
    """
    is_forced = choice == "required" or isinstance(choice, NamedTool)
    if not functions or not (is_forced or any(function.strict for function in functions)):
        return None
    if isinstance(choice, NamedTool):
        functions = [each for each in functions if each.name == choice.function.name]
    is_one = isinstance(choice, NamedTool) or not are_parallel
    schema = {
        "anyOf": [
            _call_schema(place, function, is_enforced=is_forced or bool(function.strict))
            for place, function in enumerate(functions)
        ]
    }
    between = None if is_one else _BREAK
    tagged = TaggedJson(BEGIN, END, _BREAK, schema, between, is_free=not is_forced)
    return Grammar(GrammarKind.TAGGED_JSON, tagged.written(), FIELD)


def _call_schema(place: int, function: Function, *, is_enforced: bool) -> dict[str, Any]:
    arguments: object = _ANY_ARGUMENTS
    if is_enforced and function.parameters is not None:
        arguments = _moved(function.parameters, f"#/anyOf/{place}/properties/arguments")
    return {
        "type": "object",
        "properties": {"name": {"const": function.name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _moved(schema: object, root: str) -> object:
    """Return a schema whose references within it still hold where it is part of another."""
    if isinstance(schema, list):
        return [_moved(item, root) for item in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast("dict[str, object]", schema)
    moved = {key: _moved(value, root) for key, value in fields.items()}
    reference = fields.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = root + reference[1:]
    return moved

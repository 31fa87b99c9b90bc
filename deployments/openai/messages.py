"""The messages of a chat: what clients may send, and what a chat template is given of it."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from deployments.openai import errors
from deployments.openai.errors import RefusedError
from deployments.openai.fields import Text
from deployments.openai.tokenizer import TextTokenizer

MAX_TOOL_CALLS = 128


def _as_text(value: object) -> object:
    """Join text parts by line breaks; leave anything else for the type check to refuse."""
    if not isinstance(value, list):
        return value
    parts = cast("list[Any]", value)
    for index, part in enumerate(parts):
        if not (isinstance(part, dict) and part.get("type") == "text"):  # pyright: ignore[reportUnknownMemberType]
            raise ValueError(f"part {index} must be {{'type': 'text', 'text': ...}}")
        if not isinstance(part.get("text"), str):  # pyright: ignore[reportUnknownMemberType]
            raise ValueError(f"part {index} has no text")
    return "\n".join(part["text"] for part in parts)


class TextPart(BaseModel):
    """One part of a message's content."""

    type: Literal["text"]
    text: str


class FunctionCall(BaseModel):
    """Which function an assistant called, and with what: JSON, as it wrote it."""

    model_config = ConfigDict(strict=True, extra="ignore")

    name: Text
    arguments: Text = ""


class ToolCall(BaseModel):
    """A call that an assistant made in an earlier message."""

    model_config = ConfigDict(strict=True, extra="ignore")

    id: Text | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(BaseModel):
    """One message of a chat; its content is text once read."""

    model_config = ConfigDict(strict=True, extra="ignore")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[Text | None, BeforeValidator(_as_text, str | list[TextPart] | None)] = None
    name: Text | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_TOOL_CALLS)] | None = None
    tool_call_id: Text | None = None


def template_messages(
    messages: Sequence[Message], tokenizer: TextTokenizer
) -> list[dict[str, Any]]:
    """Return the messages as chat templates know them: `developer` is OpenAI's newer `system`.

    Raises:
        RefusedError: A message has what the template does not show, or lacks its content.
    """
    for index, message in enumerate(messages):
        _refuse_what_would_be_lost(f"messages[{index}]", message, tokenizer)
    return [_template_message(message) for message in messages]


def _refuse_what_would_be_lost(place: str, message: Message, tokenizer: TextTokenizer) -> None:
    if message.content is None and message.role != "assistant":
        raise RefusedError(
            errors.invalid_parameter(
                f"{place}.content", f"{place}.content: a message of {message.role!r} needs a text"
            )
        )
    if message.tool_calls and message.role != "assistant":
        raise RefusedError(
            errors.invalid_parameter(
                f"{place}.tool_calls", f"{place}.tool_calls: only an assistant makes calls"
            )
        )
    if (message.tool_calls or message.role == "tool") and not tokenizer.shows_tool_calls:
        param = f"{place}.tool_calls" if message.tool_calls else f"{place}.role"
        raise RefusedError(
            errors.unsupported_parameter(param, "this model's chat template shows no tool calls")
        )


def _template_message(message: Message) -> dict[str, Any]:
    role = "system" if message.role == "developer" else message.role
    # Templates that see null write "None".
    written: dict[str, Any] = {"role": role, "content": message.content or ""}
    if message.tool_calls:
        written["tool_calls"] = [_template_call(call) for call in message.tool_calls]
    for name in ("name", "tool_call_id"):
        if (value := getattr(message, name)) is not None:
            written[name] = value
    return written


def _template_call(call: ToolCall) -> dict[str, Any]:
    """Return a call with its arguments as an object, which templates write in the model's way.

    Arguments that are no JSON object stay the text that they are: the model may have written so.
    """
    arguments: object = call.function.arguments
    try:
        read: object = json.loads(call.function.arguments)
    except (ValueError, RecursionError):
        read = None
    if isinstance(read, dict):
        arguments = cast("dict[str, Any]", read)
    function = {"name": call.function.name, "arguments": arguments}
    identity = {} if call.id is None else {"id": call.id}
    return {**identity, "type": call.type, "function": function}

"""What a request's answer must match: its form, or the calls it must make."""

from collections.abc import Mapping, Sequence
from typing import Any

from deployments.openai import errors, response_format
from deployments.openai.errors import RefusedError
from deployments.openai.schemas import ChatBody, GenerationBody
from deployments.openai.tokenizer import TextTokenizer
from deployments.openai.tool_calls import CallReader
from deployments.openai.tools import (
    Function,
    NamedTool,
    grammar_of_calls,
    template_tools,
    tools_in_use,
)
from dflash.grammar.text import Grammar


def grammar_of(body: GenerationBody) -> Grammar | None:
    """Return what an answer must match; None where it is free.

    Raises:
        RefusedError: What is asked for cannot be had, or not together.
        RequestError: It is too long.
    """
    form = response_format.grammar_of(body.response_format)
    functions = functions_of(body)
    if not functions or not isinstance(body, ChatBody):
        return form
    if form is not None:
        raise RefusedError(
            errors.unsupported_parameter(
                "response_format", "not together with tools; set tool_choice to none"
            )
        )
    return grammar_of_calls(
        functions, body.tool_choice, are_parallel=body.parallel_tool_calls is not False
    )


def functions_of(body: GenerationBody) -> tuple[Function, ...]:
    """Return the functions that the model may call.

    Raises:
        RefusedError: As `tools_in_use`.
    """
    return tools_in_use(body.tools, body.tool_choice) if isinstance(body, ChatBody) else ()


def template_variables(
    given: Mapping[str, Any] | None, functions: Sequence[Function], tokenizer: TextTokenizer
) -> dict[str, Any]:
    """Return what the chat template is to read besides the messages.

    Args:
        given: What the client says of it.
        functions: Those that the model may call.
        tokenizer: Has the template.

    Raises:
        RefusedError: There are functions, and the template has no place for them.
    """
    variables = dict(given or {})
    if functions:
        if tokenizer.why_no_tools is not None:
            raise RefusedError(errors.unsupported_parameter("tools", tokenizer.why_no_tools))
        variables["tools"] = template_tools(functions)
    return variables


def call_reader_of(body: GenerationBody) -> CallReader | None:
    """Return what finds the calls in one choice's text; None where nothing can be called."""
    functions = functions_of(body)
    if not functions or not isinstance(body, ChatBody):
        return None
    is_one = body.parallel_tool_calls is False or isinstance(body.tool_choice, NamedTool)
    return CallReader({function.name for function in functions}, 1 if is_one else None)

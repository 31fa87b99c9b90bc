"""`POST /tokenize` and `POST /detokenize`, in the form that vLLM gave them."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from deployments.openai import errors
from deployments.openai.errors import RefusedError
from deployments.openai.fields import Text
from deployments.openai.schemas import MessagesField, TemplateVariables
from deployments.openai.tokenizer import TextTokenizer
from deployments.openai.tools import ToolsField

# An answer writes several bytes for each; longer than any model's context by far.
MAX_CHARACTERS = 1_048_576
MAX_TOKENS = 262_144


class TokenizeBody(BaseModel):
    """`POST /tokenize`: a text, or the messages of a chat."""

    model_config = ConfigDict(strict=True, extra="ignore")

    model: str | None = None
    prompt: Annotated[Text, Field(max_length=MAX_CHARACTERS)] | None = None
    messages: MessagesField | None = None
    tools: ToolsField | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: TemplateVariables | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(BaseModel):
    """`POST /detokenize`."""

    model_config = ConfigDict(strict=True, extra="ignore")

    model: str | None = None
    tokens: Annotated[list[int], Field(max_length=MAX_TOKENS)]


def refuse_unclear(body: TokenizeBody) -> None:
    """Refuse a body that is neither a text nor a chat, or half of each.

    Raises:
        RefusedError: As said.
    """
    if (body.prompt is None) == (body.messages is None):
        raise RefusedError(
            errors.invalid_parameter("prompt", "prompt or messages must be given, and one of them")
        )
    if body.messages is None:
        for name in ("tools", "add_generation_prompt", "chat_template_kwargs"):
            if getattr(body, name) is not None:
                raise RefusedError(
                    errors.invalid_parameter(name, f"{name} needs messages; leave it out")
                )


def tokenize_body(
    token_ids: tuple[int, ...], tokenizer: TextTokenizer, max_model_len: int, *, with_strings: bool
) -> dict[str, Any]:
    """Return the answer of `/tokenize`."""
    return {
        "count": len(token_ids),
        "max_model_len": max_model_len,
        "tokens": token_ids,
        "token_strs": [tokenizer.name_of(id_) for id_ in token_ids] if with_strings else None,
    }

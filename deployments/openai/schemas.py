"""The request bodies, as strict models: types and sizes here, ranges in the engine's own table."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from deployments.openai.fields import Text
from deployments.openai.messages import Message
from dflash.request import MAX_STOP_TOKEN_IDS, MAX_TOP_LOGPROBS

MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256
MAX_MESSAGES = 4096
MAX_TEMPLATE_VARIABLES = 16
MAX_CHOICES = 8
# Of all prompts of a request together.
MAX_CHOICES_IN_ALL = 32

# Fields of the API (OpenAI's or other engines') that change the answer and are not served.
# Ignoring one would be a wrong answer in silence, so each is refused by name.
UNSUPPORTED: Mapping[str, str] = {
    "tools": "this server calls no tools",
    "tool_choice": "this server calls no tools",
    "functions": "this server calls no functions",
    "function_call": "this server calls no functions",
    "structured_outputs": "output cannot be constrained to a grammar",
    "guided_json": "output cannot be constrained to a grammar",
    "guided_regex": "output cannot be constrained to a grammar",
    "guided_choice": "output cannot be constrained to a grammar",
    "guided_grammar": "output cannot be constrained to a grammar",
    "grammar": "output cannot be constrained to a grammar",
    "json_schema": "output cannot be constrained to a grammar",
    "regex": "output cannot be constrained to a grammar",
    "ebnf": "output cannot be constrained to a grammar",
    "use_beam_search": "tokens are sampled, not searched",
    "prompt_logprobs": "log-probabilities are of generated tokens only",
    "suffix": "the model does not fill in the middle",
    "allowed_token_ids": "use logit_bias",
    "bad_words": "use logit_bias",
    "prompt_embeds": "a prompt is text or token ids",
    "chat_template": "the model's own chat template is used",
    "continue_final_message": "the answer is always a new message",
    "max_new_tokens": "use max_tokens",
    "stop_regex": "use stop, which takes plain strings",
    "modalities": "the model reads and writes text",
    "audio": "the model reads and writes text",
    "prediction": "predicted outputs are not served",
    "web_search_options": "this server searches nothing",
}

# Values under which a refused field asks for nothing.
_ASKS_FOR_NOTHING: tuple[object, ...] = (None, False, [], {}, "")
# Without tools, these words choose none; elsewhere they are values like any other.
_CHOOSES_NOTHING = ("none", "auto")
_CHOICES = frozenset({"tool_choice", "function_call"})


def asks_for_nothing(name: str, value: object) -> bool:
    """Return whether a client only spelt out a refused field's default."""
    if name in _CHOICES and isinstance(value, str) and value in _CHOOSES_NOTHING:
        return True
    return any(value == nothing and type(value) is type(nothing) for nothing in _ASKS_FOR_NOTHING)


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _as_bias(value: object) -> object:
    """Read the ids that JSON can only write as text."""
    if not isinstance(value, dict):
        return value
    pairs: dict[int, object] = {}
    # Keys of a JSON object are text.
    for key, bias in cast("dict[str, object]", value).items():
        if not (key.isdecimal() and key.isascii() and len(key) <= 10):
            raise ValueError(f"keys must be token ids, got {key[:40]!a}")
        pairs[int(key)] = bias
    return pairs


Finite = Annotated[float, Field(allow_inf_nan=False)]
StopString = Annotated[Text, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]
StopStringsField = Annotated[
    list[StopString], Field(max_length=MAX_STOPS), BeforeValidator(_as_list)
]
NumChoices = Annotated[int, Field(ge=1, le=MAX_CHOICES)]
Bias = Annotated[
    dict[int, Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]],
    BeforeValidator(_as_bias),
]
MessagesField = Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
TemplateVariables = Annotated[dict[str, Any], Field(max_length=MAX_TEMPLATE_VARIABLES)]


class StreamOptions(BaseModel):
    """What a stream carries besides the answer."""

    model_config = ConfigDict(strict=True, extra="ignore")

    include_usage: bool | None = None


class SpeculationField(BaseModel):
    """How far drafts may go for one request: less than the server would, never more."""

    # A slip in here would let drafts go on that someone wanted off.
    model_config = ConfigDict(strict=True, extra="forbid")

    mode: Literal["auto", "off"] = "auto"
    max_draft_len: Annotated[int, Field(ge=0)] | None = None

    @property
    def max_draft_length(self) -> int | None:
        """Most draft tokens to verify in a step; None leaves it to the server."""
        return 0 if self.mode == "off" else self.max_draft_len


class GenerationBody(BaseModel):
    """Fields that both endpoints share."""

    model_config = ConfigDict(strict=True, extra="ignore")

    model: str
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: Finite | None = None
    top_p: Finite | None = None
    top_k: int | None = None
    min_p: Finite | None = None
    presence_penalty: Finite | None = None
    frequency_penalty: Finite | None = None
    repetition_penalty: Finite | None = None
    logit_bias: Bias | None = None
    seed: int | None = None
    stop: StopStringsField | None = None
    stop_token_ids: Annotated[list[int], Field(max_length=MAX_STOP_TOKEN_IDS)] | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    n: NumChoices | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: dict[str, Any] | None = None
    user: str | None = None
    speculation: SpeculationField | None = None


class ChatBody(GenerationBody):
    """`POST /v1/chat/completions`."""

    messages: MessagesField
    add_special_tokens: bool | None = None
    chat_template_kwargs: TemplateVariables | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


class CompletionBody(GenerationBody):
    """`POST /v1/completions`."""

    prompt: Text | list[Any]
    add_special_tokens: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    echo: bool | None = None
    best_of: NumChoices | None = None

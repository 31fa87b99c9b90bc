"""The request bodies, as strict models: types and sizes here, ranges in the engine's own table."""

from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from deployments.openai.fields import Text
from deployments.openai.messages import Message
from deployments.openai.response_format import ResponseFormat
from deployments.openai.tools import ToolChoice, ToolsField
from dflash.request import MAX_STOP_TOKEN_IDS, MAX_TOP_LOGPROBS

MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256
MAX_MESSAGES = 4096
MAX_TEMPLATE_VARIABLES = 16
MAX_CHOICES = 8
# Of all prompts of a request together.
MAX_CHOICES_IN_ALL = 32


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
    list[StopString], Field(max_length=MAX_STOPS), BeforeValidator(_as_list, str | list[StopString])
]
NumChoices = Annotated[int, Field(ge=1, le=MAX_CHOICES)]
Bias = Annotated[
    dict[int, Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]],
    BeforeValidator(_as_bias, dict[str, float]),
]
MessagesField = Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
TemplateVariables = Annotated[dict[str, Any], Field(max_length=MAX_TEMPLATE_VARIABLES)]


# The text under a field is its description, in the API's document and in docs/compatibility.md.
_SETTINGS = ConfigDict(strict=True, extra="ignore", use_attribute_docstrings=True)


class StreamOptions(BaseModel):
    """What a stream carries besides the answer."""

    model_config = _SETTINGS

    include_usage: bool | None = None
    """A last frame has the counts, and no choices."""
    continuous_usage_stats: bool | None = None
    """With `include_usage`: every frame has the counts so far."""


class SpeculationField(BaseModel):
    """How far drafts may go for one request: less than the server would, never more."""

    # A slip in here would let drafts go on that someone wanted off.
    model_config = ConfigDict(strict=True, extra="forbid", use_attribute_docstrings=True)

    mode: Literal["auto", "off"] = "auto"
    """`off` lets nobody draft."""
    max_draft_len: Annotated[int, Field(ge=0)] | None = None
    """Most draft tokens in a step; 0 lets nobody draft."""

    @property
    def max_draft_length(self) -> int | None:
        """Most draft tokens to verify in a step; None leaves it to the server."""
        return 0 if self.mode == "off" else self.max_draft_len


class GenerationBody(BaseModel):
    """Fields that both endpoints share. Null is as if the field were left out."""

    model_config = _SETTINGS

    model: str
    """The model's name, from `GET /v1/models`."""
    max_tokens: int | None = None
    """Most tokens of a choice; without it, what the context leaves."""
    max_completion_tokens: int | None = None
    """Another name of `max_tokens`."""
    temperature: Finite | None = None
    """0 to 100, 1 by default; 0 takes the likeliest token, ties go to the lower id."""
    top_p: Finite | None = None
    """Over 0 to 1: the smallest set of tokens whose probability reaches this."""
    top_k: int | None = None
    """The so many likeliest tokens; 0 or -1 keeps all."""
    min_p: Finite | None = None
    """0 to 1: drops tokens under this share of the likeliest one's probability."""
    presence_penalty: Finite | None = None
    """-2 to 2, subtracted once from tokens already emitted."""
    frequency_penalty: Finite | None = None
    """-2 to 2, subtracted for each time a token was emitted."""
    repetition_penalty: Finite | None = None
    """0.01 to 10, divides what is in prompt or answer; 1 is off."""
    logit_bias: Bias | None = None
    """-100 to 100 by token id, added to the logits."""
    seed: int | None = None
    """Of the noise, from 0 to 2^64 - 1. Drawn and reported where there is none: the same request \
with it has the same answer, whatever was drafted and at any load."""
    stop: StopStringsField | None = None
    """Up to 16 strings that end the answer; it does not hold them."""
    stop_token_ids: Annotated[list[int], Field(max_length=MAX_STOP_TOKEN_IDS)] | None = None
    """Up to 64 ids that end the answer."""
    min_tokens: int | None = None
    """No stop of any kind before so many tokens."""
    ignore_eos: bool | None = None
    """The model's end of sequence is a token like others."""
    n: NumChoices | None = None
    """1 to 8 choices. With a seed the first is that of `n` 1."""
    stream: bool | None = None
    """The answer comes in server-sent events."""
    stream_options: StreamOptions | None = None
    """Needs `stream`. `include_usage`: a last frame has the counts; `continuous_usage_stats`: \
every frame has them."""
    response_format: ResponseFormat | None = None
    """`text`, any JSON object, or JSON that matches a schema, enforced at every token; not \
together with `min_tokens` or `ignore_eos`."""
    user: str | None = None
    """Accepted, and of no effect."""
    speculation: SpeculationField | None = None
    """How far drafts may go: `mode` `auto` or `off`, `max_draft_len`. Changes no id."""
    metrics: bool | None = None
    """The answer says under `metrics` how long it took and how it was decoded; a stream does so \
in a frame after its last choice."""


class ChatBody(GenerationBody):
    """`POST /v1/chat/completions`."""

    messages: MessagesField
    """Roles `system`, `developer`, `user`, `assistant` and, where the model's template shows tool \
calls, `tool`. Content is a text or text parts."""
    add_special_tokens: bool | None = None
    """The tokenizer's start ids before what the template writes; off by default."""
    chat_template_kwargs: TemplateVariables | None = None
    """What the model's template reads besides the messages; what it does not read is refused."""
    tools: ToolsField | None = None
    """Up to 128 functions that the model may call, where its template has tools in Qwen3's form. \
Arguments match `parameters` where `strict` is set or a call is forced."""
    tool_choice: ToolChoice | None = None
    """`auto`, the default; `none` does not show them; `required` forces calls, a named function \
one of it."""
    parallel_tool_calls: bool | None = None
    """False ends an answer with its first call."""
    logprobs: bool | None = None
    """Log-probabilities of each token, from the row that chose it."""
    top_logprobs: int | None = None
    """0 to 20 likeliest tokens with each; needs `logprobs`."""


class CompletionBody(GenerationBody):
    """`POST /v1/completions`."""

    prompt: Text | list[Any]
    """A text, token ids, or a list of either; up to 32 choices in all."""
    add_special_tokens: bool | None = None
    """The tokenizer's start ids before a text; on by default."""
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    """0 to 20 likeliest tokens with each; not together with `echo`."""
    echo: bool | None = None
    """The prompt stands before the answer."""
    best_of: NumChoices | None = None
    """The number of `n`: choices are not ranked."""

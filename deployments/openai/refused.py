"""Fields of the API, OpenAI's or other engines', that change the answer and are not served.

Ignoring one would be a wrong answer in silence, so each is refused by name. A field that an
endpoint serves is not looked up here.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a field is refused.

    Attributes:
        reason: What there is instead.
        asks_for_nothing: Values that only spell out what happens anyway, beside null, false and
            what is empty.
    """

    reason: str
    asks_for_nothing: tuple[object, ...] = ()


_TOOLS = "a completion calls no tools; use /v1/chat/completions"
_SCHEMA = "use response_format, which takes a JSON Schema"
_GRAMMAR = "an answer is constrained by a JSON Schema only, in response_format"
_TEXT_ONLY = "the model reads and writes text"

REFUSED: Mapping[str, Refused] = {
    "tools": Refused(_TOOLS),
    # Without tools, these words choose none.
    "tool_choice": Refused(_TOOLS, ("none", "auto")),
    "parallel_tool_calls": Refused(_TOOLS, (True,)),
    "functions": Refused("use tools"),
    "function_call": Refused("use tool_choice", ("none", "auto")),
    "structured_outputs": Refused(_SCHEMA),
    "guided_json": Refused(_SCHEMA),
    "guided_regex": Refused(_GRAMMAR),
    "guided_choice": Refused(_GRAMMAR),
    "guided_grammar": Refused(_GRAMMAR),
    "grammar": Refused(_GRAMMAR),
    "json_schema": Refused(_SCHEMA),
    "regex": Refused(_GRAMMAR),
    "ebnf": Refused(_GRAMMAR),
    "use_beam_search": Refused("tokens are sampled, not searched"),
    "length_penalty": Refused("tokens are sampled, not searched", (1,)),
    "early_stopping": Refused("tokens are sampled, not searched"),
    "typical_p": Refused("use top_p or min_p", (1,)),
    "top_a": Refused("use min_p", (0,)),
    "repeat_penalty": Refused("use repetition_penalty", (1,)),
    "logits_processors": Refused("use logit_bias"),
    "allowed_token_ids": Refused("use logit_bias"),
    "bad_words": Refused("use logit_bias"),
    "prompt_logprobs": Refused("log-probabilities are of generated tokens only"),
    "top_logprobs": Refused("a completion takes the number in logprobs"),
    "return_token_ids": Refused("use /tokenize"),
    "return_tokens_as_token_ids": Refused("use /tokenize"),
    "include_stop_str_in_output": Refused("an answer ends before its stop string"),
    "skip_special_tokens": Refused("special tokens have no text in an answer", (True,)),
    "stop_regex": Refused("use stop, which takes plain strings"),
    "max_new_tokens": Refused("use max_tokens"),
    "n_predict": Refused("use max_tokens"),
    "min_new_tokens": Refused("use min_tokens"),
    "truncate_prompt_tokens": Refused("a prompt over the context is refused; shorten it"),
    "suffix": Refused("the model does not fill in the middle"),
    "echo": Refused("the answer to a chat is a new message"),
    "best_of": Refused("use n: choices are not ranked"),
    "prompt_embeds": Refused("a prompt is text or token ids"),
    "documents": Refused("write them into a message"),
    "chat_template": Refused("the model's own chat template is used"),
    "chat_template_kwargs": Refused("a completion has no chat template"),
    "add_generation_prompt": Refused("the answer is always a new message", (True,)),
    "continue_final_message": Refused("the answer is always a new message"),
    "enable_thinking": Refused("use chat_template_kwargs"),
    "reasoning_effort": Refused("use chat_template_kwargs"),
    "verbosity": Refused("say it in a message", ("medium",)),
    "modalities": Refused(_TEXT_ONLY, (["text"],)),
    "audio": Refused(_TEXT_ONLY),
    "prediction": Refused("predicted outputs are not served"),
    "web_search_options": Refused("this server searches nothing"),
    "cache_salt": Refused("all requests share one prefix cache"),
    "lora_path": Refused("adapters are not served"),
}

_NOTHING: tuple[object, ...] = (None, False, [], {}, "")


def asks_for_nothing(name: str, value: object) -> bool:
    """Return whether a client only spelt out a refused field's default."""
    if any(value == nothing and type(value) is type(nothing) for nothing in _NOTHING):
        return True
    # True equals 1 in Python, and is no number here.
    return any(
        value == same and isinstance(value, bool) == isinstance(same, bool)
        for same in REFUSED[name].asks_for_nothing
    )

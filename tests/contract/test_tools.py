"""Tools through OpenAI's own client: shown by the template, found in the text, forced."""

import json
from typing import Any

import httpx
import openai
import pytest

from deployments.openai.messages import Message, template_messages
from deployments.openai.tokenizer import TextTokenizer
from deployments.openai.tools import Tool, template_tools
from dflash.grammar.tagged import TaggedJson
from dflash.grammar.text import GrammarKind
from tests.rigs.byte_tokenizer import byte_level_tokenizer, tokenizer_files
from tests.rigs.http_server import FakeServer

ASK: Any = [{"role": "user", "content": "weather?"}]
CITY = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/city"}},
    "required": ["city"],
    "$defs": {"city": {"enum": ["Paris", "Köln"]}},
}


def tool(name: str, parameters: Any = None, **more: Any) -> Any:
    function = {"name": name, "description": f"does {name}", **more}
    if parameters is not None:
        function["parameters"] = parameters
    return {"type": "function", "function": function}


TOOLS = [tool("weather", CITY), tool("now")]
WEATHER = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
NOW = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


def create(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(
        **{"model": "fake", "messages": ASK, "tools": TOOLS, **fields}
    )


def calls_of(message: Any) -> list[tuple[str, Any]]:
    return [
        (call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls
    ]


def test_calls_come_back_as_calls(server: FakeServer, openai_client: openai.OpenAI):
    server.loop.say(f"Let me see.\n{WEATHER}\n{NOW}")
    (choice,) = create(openai_client).choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    assert calls_of(choice.message) == [("weather", {"city": "Paris"}), ("now", {})]
    assert len({call.id for call in choice.message.tool_calls}) == 2


def test_an_answer_of_calls_alone_has_no_text(server: FakeServer, openai_client: openai.OpenAI):
    server.loop.say(WEATHER)
    assert create(openai_client).choices[0].message.content is None


def test_an_answer_without_a_call_is_text(server: FakeServer, openai_client: openai.OpenAI):
    text = 'It rains. <tool_call>{"name": "rain", "arguments": {}}</tool_call>'
    server.loop.say(text)
    (choice,) = create(openai_client).choices
    assert (choice.finish_reason, choice.message.content) == ("stop", text)
    assert choice.message.tool_calls is None


@pytest.mark.usefixtures("one_step_a_message")
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 200])
@pytest.mark.parametrize("n", [1, 3])
def test_a_stream_has_the_name_first_and_the_arguments_in_pieces(
    server: FakeServer, openai_client: openai.OpenAI, size: int, n: int
):
    server.loop.say(f"So: {WEATHER}\n{NOW}")
    server.loop.tokens_per_step = size
    names: dict[tuple[int, int], str] = {}
    arguments: dict[tuple[int, int], list[str]] = {}
    text, reasons = dict.fromkeys(range(n), ""), {}
    for chunk in create(openai_client, stream=True, n=n):
        for choice in chunk.choices:
            text[choice.index] += choice.delta.content or ""
            reasons[choice.index] = choice.finish_reason
            for call in choice.delta.tool_calls or ():
                key = (choice.index, call.index)
                if key not in names:
                    assert (call.type, call.id[:5]) == ("function", "call_")
                    names[key] = call.function.name
                else:
                    assert (call.id, call.function.name) == (None, None)
                arguments.setdefault(key, []).append(call.function.arguments)
    whole = {key: json.loads("".join(pieces)) for key, pieces in arguments.items()}
    for index in range(n):
        assert (text[index], reasons[index]) == ("So:", "tool_calls")
        assert (names[index, 0], whole[index, 0]) == ("weather", {"city": "Paris"})
        assert (names[index, 1], whole[index, 1]) == ("now", {})
    if size == 1:
        assert len(arguments[0, 0]) > 5


def test_logprobs_of_all_tokens_come_with_a_call(server: FakeServer, openai_client: openai.OpenAI):
    server.loop.say(f"So: {WEATHER}")
    whole = create(openai_client, logprobs=True).choices[0].logprobs.content
    streamed = [
        entry
        for chunk in create(openai_client, logprobs=True, stream=True)
        for choice in chunk.choices
        if choice.logprobs is not None
        for entry in choice.logprobs.content
    ]
    assert "".join(entry.token for entry in whole) == f"So: {WEATHER}"
    assert [entry.token for entry in streamed] == [entry.token for entry in whole]


@pytest.mark.usefixtures("one_step_a_message")
def test_one_call_only_ends_the_answer_with_it(server: FakeServer, openai_client: openai.OpenAI):
    server.loop.say(f"{WEATHER}\n{NOW}")
    answer = create(openai_client, parallel_tool_calls=False)
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert [name for name, _ in calls_of(choice.message)] == ["weather"]
    num_tokens = len(server.loop.tokenizer.encode(WEATHER).ids)
    assert answer.usage.completion_tokens == num_tokens


def told(server: FakeServer) -> tuple[TaggedJson, Any] | None:
    """Return the grammar that the engine was given, and its schema."""
    grammar = server.loop.submitted[-1].grammar
    if grammar is None:
        return None
    assert (grammar.kind, grammar.field) == (GrammarKind.TAGGED_JSON, "tools")
    tagged = TaggedJson.read(grammar.text)
    return tagged, tagged.schema["anyOf"]


def names_in(schemas: Any) -> list[str]:
    return [each["properties"]["name"]["const"] for each in schemas]


def test_a_forced_call_is_a_grammar(server: FakeServer, openai_client: openai.OpenAI):
    server.loop.say(WEATHER)
    named = {"type": "function", "function": {"name": "weather"}}
    for choice, parallel, names, between in (
        ("required", None, ["weather", "now"], "\n"),
        ("required", False, ["weather", "now"], None),
        (named, None, ["weather"], None),
    ):
        answer = create(openai_client, tool_choice=choice, parallel_tool_calls=parallel)
        assert calls_of(answer.choices[0].message) == [("weather", {"city": "Paris"})]
        assert answer.choices[0].finish_reason == "tool_calls"
        tagged, schemas = told(server) or pytest.fail("no grammar")
        assert (names_in(schemas), tagged.between, tagged.is_free) == (names, between, False)
        arguments = schemas[0]["properties"]["arguments"]
        reference = arguments["properties"]["city"]["$ref"]
        assert reference == "#/anyOf/0/properties/arguments/$defs/city"


def test_calls_of_a_strict_function_match_in_free_text(
    server: FakeServer, openai_client: openai.OpenAI
):
    one = {"type": "object", "maxProperties": 1}
    create(openai_client, tools=[tool("weather", one, strict=True), tool("now", one)])
    tagged, schemas = told(server) or pytest.fail("no grammar")
    assert tagged.is_free
    arguments = [each["properties"]["arguments"] for each in schemas]
    assert arguments == [one, {"type": "object"}]


def test_nothing_is_forced_or_shown_where_nothing_is_to_be_called(
    server: FakeServer, openai_client: openai.OpenAI
):
    server.loop.say(WEATHER)
    create(openai_client)
    with_tools = server.loop.submitted[-1]
    answer = create(openai_client, tool_choice="none")
    without = server.loop.submitted[-1]
    create(openai_client, tools=openai.omit)
    assert told(server) is None
    assert with_tools.grammar is None
    assert without.prompt_token_ids == server.loop.submitted[-1].prompt_token_ids
    assert len(with_tools.prompt_token_ids) > len(without.prompt_token_ids)
    assert answer.choices[0].message.content == WEATHER


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"tools": [], "tool_choice": "required"}, "tool_choice", "tools is empty"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "rain"}}},
            "tool_choice",
            "no function 'rain' in tools, which has 'weather', 'now'",
        ),
        ({"tools": [tool("a"), tool("a")]}, "tools", "two functions are named 'a'"),
        ({"response_format": {"type": "json_object"}}, "response_format", "tool_choice to none"),
        (
            {"tools": [tool("a", {"not": {}})], "tool_choice": "required"},
            "tools",
            'cannot be enforced: Unimplemented keys: ["not"]',
        ),
        ({"tool_choice": "required", "extra_body": {"min_tokens": 3}}, "min_tokens", "tools says"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(
    openai_client: openai.OpenAI, fields: dict[str, Any], param: str, words: str
):
    with pytest.raises(openai.BadRequestError) as refused:
        create(openai_client, **fields)
    assert refused.value.param == param
    assert words in refused.value.message


def test_a_completion_refuses_tools(http: httpx.Client):
    answer = http.post("/v1/completions", json={"model": "fake", "prompt": "x", "tools": TOOLS})
    assert answer.json()["error"]["param"] == "tools"


# In the manner of Qwen3's: tools and calls as lines of JSON in tags, results as a user's.
QWEN_STYLE = """\
{%- if tools %}<|im_start|>system
You may call these:
<tools>{% for tool in tools %}

{{ tool | tojson }}{% endfor %}

</tools>
Answer with <tool_call> and </tool_call> around a JSON object of name and arguments.<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == "tool" %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}
{%- if message.content or not loop.first %}{{ "\\n" }}{% endif %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def tokenizer_with(template: str) -> TextTokenizer:
    files = {**tokenizer_files(byte_level_tokenizer()), "tokenizer_config.json": b"{}"}
    return TextTokenizer({**files, "chat_template.jinja": template.encode()})


def test_a_template_in_qwens_manner_gets_back_what_its_model_wrote():
    tokenizer = tokenizer_with(QWEN_STYLE)
    assert tokenizer.why_no_tools is None
    call = {"id": "c1", "type": "function", "function": {"name": "weather"}}
    call["function"]["arguments"] = '{"city":"Köln"}'  # type: ignore[index]
    messages = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": "So:", "tool_calls": [call, call]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    ]
    known = template_messages([Message.model_validate(each) for each in messages], tokenizer)
    functions = [Tool.model_validate(tool("weather", CITY, strict=True)).function]
    text = tokenizer.render_chat(known, {"tools": template_tools(functions)})
    written = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'
    shown = json.dumps(tool("weather", CITY), ensure_ascii=False)
    assert f"<tools>\n{shown}\n</tools>" in text
    assert f"<|im_start|>assistant\nSo:\n{written}\n{written}<|im_end|>" in text
    assert "<|im_start|>user\n<tool_response>\nrain\n</tool_response><|im_end|>" in text
    assert text.endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ messages }}", "has no place for them"),
        ("{{ messages }}{{ tools }}", "does not write calls as JSON in <tool_call>"),
        ("{{ messages }}{{ tools }}<tool_call><function=f>", "does not write calls as JSON"),
    ],
)
def test_a_template_that_cannot_have_tools_says_why(template: str, words: str):
    why = tokenizer_with(template).why_no_tools
    assert why is not None
    assert words in why
    assert "serve a checkpoint whose template does as Qwen3's" in why

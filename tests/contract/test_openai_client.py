"""The unmodified `openai` client against the HTTP surface."""

import asyncio

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from tests.rigs.http_server import FakeServer

HELLO = [{"role": "user", "content": "hello"}]
TEXT = "the quick brown 世界 fox 😀 jumps"


def chunks_of(client: openai.OpenAI, **fields) -> list[ChatCompletionChunk]:
    with client.chat.completions.create(
        model="fake", messages=HELLO, stream=True, **fields
    ) as stream:
        return list(stream)


def test_chat_answers_with_text_usage_and_seed(server: FakeServer, openai_client: openai.OpenAI):
    server.loop.say(TEXT)

    answer = openai_client.chat.completions.create(model="fake", messages=HELLO)

    choice = answer.choices[0]
    assert (choice.message.content, choice.message.role) == (TEXT, "assistant")
    assert (choice.finish_reason, answer.object, answer.model) == (
        "stop",
        "chat.completion",
        "fake",
    )
    num_tokens = len(server.loop.tokenizer.encode(TEXT).ids)
    prompt = server.loop.submitted[0].prompt_token_ids
    assert answer.usage.completion_tokens == num_tokens
    assert answer.usage.prompt_tokens == len(prompt)
    assert answer.usage.total_tokens == len(prompt) + num_tokens
    assert answer.seed == server.loop.submitted[0].seed


def test_chat_prompt_is_the_template_with_developer_as_system_and_parts_as_lines(
    server: FakeServer, openai_client: openai.OpenAI
):
    openai_client.chat.completions.create(
        model="fake",
        max_tokens=1,
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": t} for t in ("one", "two")]},
            {"role": "assistant", "content": None},
            {"role": "user", "content": "😀"},
        ],
    )

    prompt = server.loop.submitted[0].prompt_token_ids
    assert server.loop.tokenizer.decode(list(prompt), skip_special_tokens=False) == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\none\ntwo<|im_end|>\n"
        "<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\n😀<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_stream_has_one_id_one_created_and_the_role_in_its_first_delta_only(
    server: FakeServer, openai_client: openai.OpenAI
):
    server.loop.say(TEXT)

    chunks = chunks_of(openai_client)

    assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in chunks}) == 1
    assert chunks[0].object == "chat.completion.chunk"
    assert [chunk.choices[0].delta.role for chunk in chunks] == ["assistant"] + [None] * (
        len(chunks) - 1
    )
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT


@pytest.mark.usefixtures("one_step_a_message")
def test_no_delta_between_the_role_and_the_end_is_empty(
    server: FakeServer, openai_client: openai.OpenAI
):
    server.loop.say(TEXT)

    chunks = chunks_of(openai_client, stop=["jumpsX"])

    assert len(chunks) > 4
    assert all(chunk.choices[0].delta.content for chunk in chunks[1:-1])


def test_usage_comes_last_with_no_choices_and_is_null_before(
    server: FakeServer, openai_client: openai.OpenAI
):
    server.loop.say(TEXT)

    chunks = chunks_of(openai_client, stream_options={"include_usage": True})

    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == len(server.loop.tokenizer.encode(TEXT).ids)
    assert chunks[-1].seed == server.loop.submitted[0].seed
    assert all(chunk.usage is None and chunk.choices for chunk in chunks[:-1])


def test_stream_and_whole_answer_have_the_same_text_whatever_a_chunk_holds(
    server: FakeServer, openai_client: openai.OpenAI
):
    text = "A 世界 stop s to sto héllo 😀😀 STOP tail"
    server.loop.say(text)
    for stop in (None, ["STOP"], ["sto héllo"], ["😀😀"], ["absent", "tail"]):
        expected = text if stop is None else text[: text.index(stop[-1])]
        whole = openai_client.chat.completions.create(model="fake", messages=HELLO, stop=stop)
        assert whole.choices[0].message.content == expected
        for tokens_per_step in (1, 2, 5):
            server.loop.tokens_per_step = tokens_per_step
            server.loop.step_s = 0.001
            chunks = chunks_of(openai_client, stop=stop)
            streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            assert (streamed, chunks[-1].choices[0].finish_reason) == (expected, "stop")


def test_a_stop_string_frees_the_engine_and_later_tokens_are_not_counted(
    server: FakeServer, openai_client: openai.OpenAI
):
    server.loop.say("one STOP" + " more" * 200)
    server.loop.step_s = 0.001

    answer = openai_client.chat.completions.create(model="fake", messages=HELLO, stop="STOP")

    assert answer.choices[0].message.content == "one "
    spoken = server.loop.tokenizer.encode("one STOP").ids
    assert answer.usage.completion_tokens <= len(spoken)
    assert sum(server.loop.aborted.values()) == 1


def test_length_is_the_reason_when_the_budget_ends(
    server: FakeServer, openai_client: openai.OpenAI
):
    for field in ("max_tokens", "max_completion_tokens"):
        answer = openai_client.chat.completions.create(model="fake", messages=HELLO, **{field: 3})
        assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 3)


def test_without_max_tokens_an_answer_may_fill_the_context(
    server: FakeServer, openai_client: openai.OpenAI
):
    answer = openai_client.completions.create(model="fake", prompt="abc")

    assert answer.usage.total_tokens == server.loop.engine.facts.max_model_len
    assert answer.choices[0].finish_reason == "length"


def test_each_token_of_a_block_has_its_own_logprobs_streamed_or_not(
    server: FakeServer, openai_client: openai.OpenAI
):
    server.loop.say(TEXT)
    server.loop.tokens_per_step = 4
    asked = {"logprobs": True, "top_logprobs": 3}

    whole = openai_client.chat.completions.create(model="fake", messages=HELLO, **asked)
    chunks = chunks_of(openai_client, **asked)

    entries = whole.choices[0].logprobs.content
    streamed = [
        entry
        for chunk in chunks
        if chunk.choices[0].logprobs
        for entry in chunk.choices[0].logprobs.content
    ]
    assert streamed == entries
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == TEXT
    assert [round(entry.logprob, 2) for entry in entries] == [
        round(-0.01 * index, 2) for index in range(len(entries))
    ]
    assert all(len(entry.top_logprobs) == 3 for entry in entries)


def test_completion_offsets_point_at_each_token_in_the_text(
    server: FakeServer, openai_client: openai.OpenAI
):
    text = "the quick brown fox jumps over"
    server.loop.say(text)
    server.loop.tokens_per_step = 3

    whole = openai_client.completions.create(model="fake", prompt="abc", logprobs=2)
    with openai_client.completions.create(
        model="fake", prompt="abc", logprobs=2, stream=True
    ) as stream:
        parts = [chunk.choices[0] for chunk in stream]

    logprobs = whole.choices[0].logprobs
    assert whole.choices[0].text == text
    for token, offset in zip(logprobs.tokens, logprobs.text_offset, strict=True):
        assert text[offset : offset + len(token)] == token
    streamed = [offset for part in parts if part.logprobs for offset in part.logprobs.text_offset]
    assert streamed == logprobs.text_offset


def test_logprobs_are_of_the_tokens_whose_text_is_shown(
    server: FakeServer, openai_client: openai.OpenAI
):
    server.loop.say("abc fox and more")

    answer = openai_client.completions.create(model="fake", prompt="abc", stop="d more", logprobs=0)

    logprobs = answer.choices[0].logprobs
    assert answer.choices[0].text == "abc fox an"
    assert "".join(logprobs.tokens) == "abc fox an"


@pytest.mark.parametrize("stream", [False, True])
def test_echo_puts_the_prompt_before_the_completion(
    server: FakeServer, openai_client: openai.OpenAI, stream: bool
):
    server.loop.say(" fox")
    prompts = ["the quick", list(server.loop.tokenizer.encode("the quick").ids)]
    for prompt in prompts:
        answer = openai_client.completions.create(
            model="fake", prompt=prompt, echo=True, stream=stream
        )
        parts = list(answer) if stream else [answer]
        assert "".join(part.choices[0].text for part in parts) == "the quick fox"


def test_a_prompt_can_be_text_ids_or_a_list_of_one_of_them(
    server: FakeServer, openai_client: openai.OpenAI
):
    token_ids = server.loop.tokenizer.encode("the fox").ids
    for prompt in ("the fox", ["the fox"], token_ids, [token_ids]):
        openai_client.completions.create(model="fake", prompt=prompt, max_tokens=1)
    assert {request.prompt_token_ids for request in server.loop.submitted} == {tuple(token_ids)}


def test_a_seed_repeats_itself_on_both_endpoints(server: FakeServer, openai_client: openai.OpenAI):
    def chat(seed: int) -> str:
        answer = openai_client.chat.completions.create(
            model="fake", messages=HELLO, seed=seed, max_tokens=8
        )
        return answer.choices[0].message.content

    def complete(seed: int) -> str:
        answer = openai_client.completions.create(
            model="fake", prompt="abc", seed=seed, max_tokens=8
        )
        return answer.choices[0].text

    for ask in (chat, complete):
        assert ask(7) == ask(7) != ask(8)


def test_engine_fields_beyond_openai_reach_the_engine(
    server: FakeServer, openai_client: openai.OpenAI
):
    openai_client.chat.completions.create(
        model="fake",
        messages=HELLO,
        max_tokens=4,
        temperature=0.5,
        top_p=0.9,
        presence_penalty=0.25,
        frequency_penalty=-0.25,
        logit_bias={"7": 2},
        seed=11,
        extra_body={
            "top_k": 40,
            "min_p": 0.05,
            "repetition_penalty": 1.1,
            "min_tokens": 2,
            "ignore_eos": True,
            "stop_token_ids": [9],
        },
    )

    request = server.loop.submitted[0]
    sampling = request.sampling
    assert (request.seed, request.max_tokens) == (11, 4)
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (
        0.5,
        0.9,
        40,
        0.05,
    )
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.25, -0.25)
    assert (sampling.repetition_penalty, sampling.min_tokens) == (1.1, 2)
    assert (sampling.ignore_eos, sampling.stop_token_ids) == (True, (9,))
    assert sampling.logit_bias == ((7, 2.0),)


def test_the_async_client_streams_many_answers_at_once(server: FakeServer):
    async def run() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{server.base_url}/v1", api_key="any", max_retries=0
        ) as client:

            async def one(seed: int) -> str:
                stream = await client.completions.create(
                    model="fake", prompt="abc", seed=seed, max_tokens=20, stream=True
                )
                return "".join([chunk.choices[0].text async for chunk in stream])

            return await asyncio.gather(*(one(seed) for seed in range(12)))

    texts = asyncio.run(run())

    for seed, text in enumerate(texts):
        ids = server.loop._endless(_like(server, seed))
        assert text == server.loop.tokenizer.decode(list(ids))


def _like(server: FakeServer, seed: int):
    return next(request for request in server.loop.submitted if request.seed == seed)


def test_models_say_what_is_served_how_exact_it_is_and_what_drafts(openai_client: openai.OpenAI):
    listed = openai_client.models.list().data
    shown = openai_client.models.retrieve("fake")

    assert listed == [shown]
    assert (shown.id, shown.object) == ("fake", "model")
    assert shown.exactness == {
        "mode": "bitwise",
        "form": "scripted",
        "detail": "a script has no rounding",
    }
    assert shown.speculation == {
        "drafter": "scripted",
        "draft_length": 3,
        "detail": "a script drafts 3 letters",
        "drafters": [{"name": "scripted", "kind": "script", "max_draft_length": 3}],
    }


def test_errors_are_the_clients_own_exceptions(server: FakeServer, openai_client: openai.OpenAI):
    with pytest.raises(openai.BadRequestError) as bad:
        openai_client.chat.completions.create(model="fake", messages=HELLO, temperature=-1)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        openai_client.chat.completions.create(model="other", messages=HELLO)
    server.loop.failure = "the engine failed while computing this request"
    with pytest.raises(openai.InternalServerError):
        openai_client.chat.completions.create(model="fake", messages=HELLO)
    with pytest.raises(openai.APIError, match="the engine failed while computing"):
        chunks_of(openai_client)

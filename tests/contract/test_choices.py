"""Several choices of one request: each grows by itself, and they are answered as one."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from deployments import replica as replica_module
from deployments.room import Room
from dflash.config import EngineLimits
from dflash.request import GenerateRequest
from tests.rigs.http_server import FakeServer, eventually

HELLO = [{"role": "user", "content": "hello"}]
CHAT = {"model": "fake", "messages": HELLO, "max_tokens": 6, "seed": 5}
TEXT = {"model": "fake", "prompt": "hello", "max_tokens": 6, "seed": 5}


def is_quiet(server: FakeServer) -> bool:
    return not server.replica._streams and not server.loop.snapshot().num_running


@pytest.mark.parametrize("n", [1, 2, 8])
def test_with_a_seed_the_first_choice_is_the_only_one_of_a_request_for_one(
    server: FakeServer, openai_client: openai.OpenAI, n: int
):
    alone = openai_client.chat.completions.create(**CHAT)
    several = openai_client.chat.completions.create(**CHAT, n=n)
    again = openai_client.chat.completions.create(**CHAT, n=n)

    texts = [choice.message.content for choice in several.choices]
    assert texts[0] == alone.choices[0].message.content
    assert len(set(texts)) == n
    assert texts == [choice.message.content for choice in again.choices]
    assert [choice.index for choice in several.choices] == list(range(n))
    assert {(request.seed, request.choice) for request in server.loop.submitted[1 : n + 1]} == {
        (5, index) for index in range(n)
    }


def test_counts_are_summed_and_the_prompt_is_counted_once(
    server: FakeServer, openai_client: openai.OpenAI
):
    def script(request: GenerateRequest) -> tuple[int, ...]:
        return (7,) * (request.choice + 1)

    server.loop.script = script
    for stream in (False, True):
        fields = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        answer = openai_client.chat.completions.create(**CHAT, n=3, **fields)
        usage = list(answer)[-1].usage if stream else answer.usage
        assert usage.completion_tokens == 1 + 2 + 3
        assert usage.prompt_tokens == len(server.loop.submitted[-1].prompt_token_ids)
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


@pytest.mark.usefixtures("one_step_a_message")
def test_a_stream_interleaves_choices_and_each_begins_and_ends_once(
    server: FakeServer, openai_client: openai.OpenAI
):
    whole = openai_client.chat.completions.create(**CHAT, n=3)
    with openai_client.chat.completions.create(**CHAT, n=3, stream=True) as stream:
        chunks = list(stream)

    by_index = defaultdict(list)
    for chunk in chunks:
        (choice,) = chunk.choices
        by_index[choice.index].append(choice)
    assert sorted(by_index) == [0, 1, 2]
    for index, parts in by_index.items():
        assert [part.delta.role for part in parts] == ["assistant"] + [None] * (len(parts) - 1)
        reasons = [part.finish_reason for part in parts]
        assert reasons == [None] * (len(parts) - 1) + ["length"]
        text = "".join(part.delta.content or "" for part in parts)
        assert text == whole.choices[index].message.content
    order = [chunk.choices[0].index for chunk in chunks]
    assert order != sorted(order)


def test_a_stop_string_ends_its_own_choice_and_the_others_go_on(
    server: FakeServer, openai_client: openai.OpenAI
):
    texts = ["one STOP two", "three four"]

    def script(request: GenerateRequest) -> tuple[int, ...]:
        return tuple(server.loop.tokenizer.encode(texts[request.choice]).ids)

    server.loop.script = script
    fields = {**CHAT, "max_tokens": 60, "n": 2, "stop": "STOP"}
    for tokens_per_step in (1, 50):
        server.loop.tokens_per_step = tokens_per_step
        answer = openai_client.chat.completions.create(**fields)
        assert [choice.message.content for choice in answer.choices] == ["one ", "three four"]


def test_each_choice_has_its_own_logprobs(server: FakeServer, openai_client: openai.OpenAI):
    def entries(answer) -> list[list[str]]:
        return [[entry.token for entry in each.logprobs.content] for each in answer.choices]

    fields = {**CHAT, "logprobs": True, "top_logprobs": 1}
    answer = openai_client.chat.completions.create(**fields, n=2)

    assert ["".join(tokens) for tokens in entries(answer)] == [
        choice.message.content for choice in answer.choices
    ]


def test_several_prompts_have_their_choices_in_order_and_are_counted_each(
    server: FakeServer, openai_client: openai.OpenAI
):
    ids = list(server.loop.tokenizer.encode("the fox").ids)
    fields = {**TEXT, "n": 2, "best_of": 2, "echo": True}
    for prompts in (["ab", "the fox"], [list(server.loop.tokenizer.encode("ab").ids), ids]):
        server.loop.submitted.clear()
        answer = openai_client.completions.create(**{**fields, "prompt": prompts})
        with openai_client.completions.create(
            **{**fields, "prompt": prompts}, stream=True
        ) as stream:
            streamed = defaultdict(str)
            for chunk in stream:
                streamed[chunk.choices[0].index] += chunk.choices[0].text

        assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
        texts = [choice.text for choice in answer.choices]
        assert [text[:2] for text in texts] == ["ab", "ab", "th", "th"]
        assert all(text.startswith("the fox") for text in texts[2:])
        assert len(set(texts)) == 4
        assert [streamed[index] for index in range(4)] == texts
        asked = {request.prompt_token_ids for request in server.loop.submitted}
        assert answer.usage.prompt_tokens == sum(map(len, asked))
        assert answer.usage.completion_tokens == 4 * 6


def test_equal_prompts_are_not_given_equal_answers(openai_client: openai.OpenAI):
    answer = openai_client.completions.create(**{**TEXT, "prompt": ["ab", "ab"]})
    first, second = answer.choices
    assert first.text != second.text


def test_more_choices_in_all_than_a_request_may_have_are_refused(http: httpx.Client):
    answer = http.post("/v1/completions", json={**TEXT, "prompt": ["a"] * 5, "n": 8})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "prompt")
    assert "40 choices" in error["message"]


def test_a_client_that_leaves_ends_every_choice_once(server: FakeServer, http: httpx.Client):
    server.loop.step_s = 0.005
    fields = {**CHAT, "max_tokens": 400, "n": 4, "stream": True}
    with http.stream("POST", "/v1/chat/completions", json=fields) as answer:
        next(answer.iter_lines())

    assert eventually(lambda: is_quiet(server))
    assert server.loop.aborted == {request.request_id: 1 for request in server.loop.submitted}
    assert len(server.loop.submitted) == 4


@pytest.mark.parametrize("stream", [False, True])
def test_a_fault_in_one_choice_ends_the_whole_answer_with_one_error(
    server: FakeServer, http: httpx.Client, stream: bool
):
    server.loop.may_step.clear()
    with ThreadPoolExecutor(1) as pool:
        fields = {**CHAT, "n": 3, "stream": stream}
        asked = pool.submit(http.post, "/v1/chat/completions", json=fields)
        assert eventually(lambda: len(server.loop.submitted) == 3)
        failing = next(each for each in server.loop.submitted if each.choice == 1)
        server.loop.abort(failing.request_id)
        answer = asked.result()

    assert answer.status_code == (200 if stream else 503)
    assert answer.text.count('"error"') == answer.text.count('"request_aborted"') == 1
    assert answer.text.endswith("data: [DONE]\n\n") == stream
    assert '"finish_reason":"' not in answer.text
    assert eventually(lambda: is_quiet(server))
    assert server.loop.aborted == {each.request_id: 1 for each in server.loop.submitted}


def test_a_choice_that_finds_no_room_refuses_them_all(
    server: FakeServer, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server.loop.engine, "limits", EngineLimits(max_num_waiting=2))
    server.loop.may_step.clear()

    for stream in (False, True):
        answer = http.post("/v1/chat/completions", json={**CHAT, "n": 3, "stream": stream})
        assert answer.status_code == 429
        assert answer.json()["error"]["code"] == "queue_full"
        assert eventually(lambda: is_quiet(server))


@pytest.fixture
def three_places(http: httpx.Client) -> Iterator[None]:
    """Serve's settings as if they allowed two requests and a queue of one."""

    def is_known(is_bounded: bool) -> bool:
        return (http.get("/readyz").json()["engines"][0]["room"] is not None) == is_bounded

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_module, "room_of_this_replica", lambda: Room(2, 1))
        assert eventually(lambda: is_known(True))
        yield
    assert eventually(lambda: is_known(False))


@pytest.mark.usefixtures("three_places")
def test_every_choice_holds_a_place_until_it_ends(server: FakeServer, http: httpx.Client):
    def ask(n: int) -> httpx.Response:
        return http.post("/v1/chat/completions", json={**CHAT, "n": n})

    refused = ask(4)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "n")
    assert "3 places" in refused.json()["error"]["message"]
    server.loop.may_step.clear()
    with http.stream("POST", "/v1/chat/completions", json={**CHAT, "n": 2, "stream": True}) as held:
        assert ask(2).json()["error"]["code"] == "queue_full"
        server.loop.may_step.set()
        assert held.read().endswith(b"[DONE]\n\n")
    assert [ask(3).status_code for _ in range(3)] == [200] * 3


def test_the_async_client_reads_many_answers_of_several_choices_at_once(server: FakeServer):
    async def run() -> list[list[str]]:
        async with openai.AsyncOpenAI(
            base_url=f"{server.base_url}/v1", api_key="any", max_retries=0
        ) as client:

            async def one(seed: int) -> list[str]:
                texts = [""] * 3
                fields = {**TEXT, "seed": seed, "n": 3, "stream": True}
                async for chunk in await client.completions.create(**fields):
                    texts[chunk.choices[0].index] += chunk.choices[0].text
                return texts

            return await asyncio.gather(*(one(seed) for seed in range(6)))

    answers = asyncio.run(run())

    for seed, texts in enumerate(answers):
        requests = [each for each in server.loop.submitted if each.seed == seed]
        assert len(requests) == 3
        for request in requests:
            expected = server.loop.tokenizer.decode(list(server.loop._endless(request)))
            assert texts[request.choice] == expected

"""What `make serve` runs, with the embedded model: real text, exact whatever happens around it."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import yaml

from deployments import replay
from dflash.cache_folder import CACHE_DIR_VARIABLE, default_cache_dir
from tests.rigs.http_server import eventually
from tests.rigs.serve_process import ROOT, ServeProcess, serve_run

MODEL = "smollm2-135m-instruct"
QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    config = yaml.safe_load((ROOT / "serve_config.yaml").read_text(encoding="utf-8"))
    with serve_run(
        config,
        tmp_path_factory.mktemp("serve"),
        # The process's own home is empty; the model was converted into the user's folder.
        environment={CACHE_DIR_VARIABLE: str(default_cache_dir())},
    ) as process:
        yield process


@pytest.fixture
def client(served: ServeProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{served.base_url}/v1", api_key="any", max_retries=0, timeout=120
    ) as client:
        yield client


def engines(served: ServeProcess) -> list[dict[str, Any]]:
    return httpx.get(f"{served.base_url}/readyz", timeout=10).json()["engines"]


def test_a_question_is_answered_with_real_text(client: openai.OpenAI):
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0)

    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert "<|im_end|>" not in answer.choices[0].message.content


def test_the_model_says_that_its_numbers_are_exact(client: openai.OpenAI):
    assert client.models.retrieve(MODEL).exactness["mode"] == "bitwise"


def test_the_model_says_what_drafts_or_why_nothing_does(client: openai.OpenAI):
    said = client.models.retrieve(MODEL).speculation

    assert set(said) == {"drafter", "draft_length", "detail", "drafters"}
    assert said["detail"].startswith(said["drafter"] or "no drafter: ")


def test_a_stream_is_the_whole_answer_and_a_seed_repeats_it_in_any_company(
    served: ServeProcess, client: openai.OpenAI
):
    asked = {"model": MODEL, "messages": QUESTION, "max_tokens": 24, "temperature": 1.0}
    alone = client.chat.completions.create(**asked, seed=11).choices[0].message.content
    with client.chat.completions.create(**asked, seed=11, stream=True) as stream:
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == alone

    choices = client.chat.completions.create(**asked, seed=11, n=3)
    texts = [choice.message.content for choice in choices.choices]
    assert texts[0] == alone
    assert len(set(texts)) == 3
    told = {"model": MODEL, "messages": QUESTION}
    tokens = httpx.post(f"{served.base_url}/tokenize", json=told, timeout=10).json()
    assert tokens["count"] == choices.usage.prompt_tokens

    async def many() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{served.base_url}/v1", api_key="any", max_retries=0
        ) as many_clients:
            answers = await asyncio.gather(
                *(
                    many_clients.chat.completions.create(**asked, seed=seed)
                    for seed in (11, 12, 13, 11, 14, 11)
                )
            )
            return [answer.choices[0].message.content for answer in answers]

    texts = asyncio.run(many())
    assert texts[0] == texts[3] == texts[5] == alone
    assert len(set(texts)) > 1


def test_an_answer_matches_its_schema_whether_or_not_it_is_drafted(client: openai.OpenAI):
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}, "sure": {"type": "boolean"}},
        "required": ["city", "sure"],
        "additionalProperties": False,
    }
    asked: Any = {
        "model": MODEL,
        "messages": QUESTION,
        "max_tokens": 60,
        "seed": 3,
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
    }
    drafted, plain = (
        client.chat.completions.create(**asked, extra_body={"speculation": {"mode": mode}})
        for mode in ("auto", "off")
    )
    assert drafted.choices[0].message.content == plain.choices[0].message.content
    assert json.loads(plain.choices[0].message.content).keys() == {"city", "sure"}
    with pytest.raises(openai.BadRequestError, match="has no place for them") as refused:
        client.chat.completions.create(
            **{**asked, "response_format": None},
            tools=[{"type": "function", "function": {"name": "look"}}],
        )
    assert refused.value.param == "tools"


def test_operators_see_pin_and_replay_the_policy_and_get_the_drafters_memory_back(
    served: ServeProcess, tmp_path: Path
):
    """Behind a handle as in one process: what goes round with the check-ins crosses it."""
    with httpx.Client(base_url=served.base_url, timeout=20) as http:

        def first() -> dict[str, Any]:
            return http.get("/policy").raise_for_status().json()["replicas"][0]

        def drafter_bytes() -> int:
            memory = http.get("/admin/memory").json()["replicas"][0]["memory"]
            assert sum(memory["parts"].values()) == memory["total_bytes"]
            return memory["parts"]["drafter_weights"]

        before = drafter_bytes()
        assert before > 0
        body = {"plan": "plain", "minutes": 5, "why": "a test", "author": "t"}
        made = http.post("/policy/pins", json={**body, "release_drafter": True})
        assert (made.status_code, made.json()["waits_for"]) == (201, [])
        assert eventually(lambda: first()["reason"] == "pinned" and drafter_bytes() == 0)
        http.delete(f"/policy/pins/{made.json()['pin']['id']}").raise_for_status()
        assert eventually(lambda: first()["pin"] is None and drafter_bytes() == before)
        assert http.get("/policy/decisions", params={"reason": "pinned"}).json()["decisions"]
        name = first()["replica"]
        signals = http.get("/policy/signals", params={"replica": name}).raise_for_status()
        (tmp_path / "signals.jsonl").write_text(signals.text)
        assert replay.main([str(tmp_path / "signals.jsonl")]) == 0


def test_a_client_that_leaves_gives_its_pages_back(served: ServeProcess):
    body = {
        "model": MODEL,
        "prompt": "Count: one, two,",
        "max_tokens": 2000,
        "ignore_eos": True,
        "stream": True,
        "n": 2,
    }
    with httpx.stream("POST", f"{served.base_url}/v1/completions", json=body) as answer:
        # Kept, because httpx closes a response whose iterator is dropped.
        lines = answer.iter_lines()
        next(lines)
        assert eventually(lambda: sum(each["num_pages_used"] for each in engines(served)) > 0)

    # Left alone, it would hold them for longer than this waits.
    assert eventually(lambda: sum(each["num_pages_used"] for each in engines(served)) == 0, 10.0)


def test_a_stream_survives_its_replica_with_the_text_of_an_undisturbed_run(
    served: ServeProcess, client: openai.OpenAI
):
    """Last in the file: the application has no engine for a while in it."""
    asked = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Tell me a long story about a fox."}],
        "max_tokens": 200,
        "temperature": 0.8,
        # What was emitted before the death counts after it.
        "presence_penalty": 0.4,
        "seed": 5,
    }
    undisturbed = client.chat.completions.create(**asked).choices[0].message.content
    (victim,) = engines(served)

    text = ""
    with client.chat.completions.create(**asked, stream=True) as stream:
        for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            if len(text) > 40 and victim is not None:
                os.kill(victim["pid"], signal.SIGKILL)
                victim = None

    assert victim is None
    assert text == undisturbed

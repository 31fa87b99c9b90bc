"""What an answer says of itself where that was asked for, in the names that others read."""

import json
from typing import Any

import httpx
import pytest

from tests.rigs.http_server import FakeServer, serving

CHAT = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 11}
COMPLETION = {"model": "fake", "prompt": "hi", "max_tokens": 11}
BODIES = {"/v1/chat/completions": CHAT, "/v1/completions": COMPLETION}


def frames(text: str) -> list[dict[str, Any]]:
    *frames, done, _ = text.split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


@pytest.fixture(autouse=True)
def four_tokens_a_step(server: FakeServer) -> None:
    server.loop.tokens_per_step = 4


@pytest.mark.parametrize("path", BODIES)
def test_an_answer_has_vllms_fields_and_ours_beside_them(http: httpx.Client, path: str):
    metrics = http.post(path, json={**BODIES[path], "metrics": True}).json()["metrics"]

    # Steps of 4, 4 and 3 tokens: the first ends the prompt, all tokens but the last are drafts.
    assert metrics["speculative_decoding"] == {
        "mean_acceptance_length": 3.5,
        "draft_acceptance_rate": 5 / 7,
        "acceptance_histogram": [0, 0, 1, 1, 0],
        "num_spec_steps": 2,
        "num_accepted_draft_tokens": 5,
        "num_draft_tokens": 7,
        "num_spec_tokens": 4,
    }
    replica = http.get("/readyz").json()["engines"][0]["replica"]
    assert metrics["policy"] == {
        "replica": replica,
        "modes": {"scripted": 2},
        "draft_len_min": 3,
        "draft_len_max": 4,
        "inactive_reasons": {},
        "plan_changes": 0,
    }
    assert 0 <= metrics["queue_time_ms"] <= metrics["time_to_first_token_ms"]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": True}}])
def test_a_stream_has_them_in_the_frame_after_its_last_choice(
    http: httpx.Client, path: str, options: dict[str, Any]
):
    body = {**BODIES[path], "stream": True, "metrics": True, **options}

    *others, last = frames(http.post(path, json=body).text)

    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 11
    assert last["metrics"]["speculative_decoding"]["num_draft_tokens"] == 7
    assert not any("metrics" in frame for frame in others)


@pytest.mark.parametrize("path", BODIES)
def test_nobody_who_did_not_ask_has_them(http: httpx.Client, path: str):
    assert "metrics" not in http.post(path, json=BODIES[path]).json()
    text = http.post(path, json={**BODIES[path], "stream": True}).text
    assert "metrics" not in text
    assert all(frame["choices"] for frame in frames(text))


def test_where_nothing_was_drafted_there_is_no_acceptance(server: FakeServer, http: httpx.Client):
    server.loop.tokens_per_step = 1

    metrics = http.post("/v1/completions", json={**COMPLETION, "metrics": True}).json()["metrics"]

    assert metrics["speculative_decoding"] is None
    assert metrics["policy"]["modes"] == {"plain": 10}
    assert metrics["policy"]["inactive_reasons"] == {"plan": 10}


def test_all_choices_are_in_the_sums(http: httpx.Client):
    body = {**COMPLETION, "metrics": True, "n": 3}

    metrics = http.post("/v1/completions", json=body).json()["metrics"]

    assert metrics["speculative_decoding"]["num_spec_steps"] == 6
    assert metrics["speculative_decoding"]["mean_acceptance_length"] == 3.5


def test_a_server_can_say_them_to_all_who_do_not_decline():
    with serving(response_metrics=True) as server:
        server.loop.tokens_per_step = 4

        def ask(**body: Any) -> httpx.Response:
            return httpx.post(f"{server.base_url}/v1/completions", json={**COMPLETION, **body})

        assert ask().json()["metrics"]["speculative_decoding"]["num_spec_steps"] == 2
        assert "metrics" not in ask(metrics=False).json()
        # A frame without a choice comes only where one was asked for.
        assert "metrics" not in ask(stream=True).text
        counted = ask(stream=True, stream_options={"include_usage": True})
        assert frames(counted.text)[-1]["metrics"]["policy"]["modes"] == {"scripted": 2}

"""What a key may use: requests and tokens a minute, and how much at once."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from deployments.guard import keys_file
from deployments.guard.account import Account, duration
from deployments.guard.keys import KeyLimits
from dflash.errors import OverloadedError
from tests.rigs.http_server import eventually
from tests.rigs.keyed_server import KeyedServer, entry, serving_with_keys, write_keys

PATH = "/v1/completions"
SECOND_NS = 1_000_000_000
KEYS = {
    "free": ("infer",),
    "few": ("infer", "requests_per_minute=2"),
    "short": ("infer", "tokens_per_minute=30"),
    "lone": ("infer", "max_concurrent=1"),
    "moody": ("infer", "tokens_per_minute=1000"),
}


@pytest.fixture
def keyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeyedServer]:
    monkeypatch.setattr(keys_file, "LOOK_INTERVAL_S", 0.01)
    with serving_with_keys(tmp_path, KEYS) as served:
        yield served


@pytest.fixture
def http(keyed: KeyedServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=keyed.server.base_url, timeout=20) as client:
        yield client


def ask(
    http: httpx.Client, keyed: KeyedServer, name: str, num_prompt: int = 4, **fields: object
) -> httpx.Response:
    body = {"model": "fake", "prompt": [7] * num_prompt, "max_tokens": 2, **fields}
    return http.post(PATH, json=body, headers=keyed.bearer(name))


def left(answer: httpx.Response, what: str) -> int:
    return int(answer.headers[f"x-ratelimit-remaining-{what}"])


def test_requests_over_those_of_a_minute_are_refused_with_a_time_to_retry(
    keyed: KeyedServer, http: httpx.Client
):
    answers = [ask(http, keyed, "few") for _ in range(3)]

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [left(answer, "requests") for answer in answers] == [1, 0, 0]
    assert {answer.headers["x-ratelimit-limit-requests"] for answer in answers} == {"2"}
    assert answers[0].headers["x-ratelimit-reset-requests"] == "30s"
    refused = answers[-1]
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    error = refused.json()["error"]
    assert error["code"] == "rate_limit_exceeded"
    assert "requests_per_minute is 2" in error["message"]
    # No more than those were begun, what only looks is not counted, and others have their own.
    assert len(keyed.server.loop.submitted) == 2
    assert http.get("/v1/models", headers=keyed.bearer("few")).status_code == 200
    assert ask(http, keyed, "free").status_code == 200
    assert not [name for name in ask(http, keyed, "free").headers if "ratelimit" in name]


def test_the_openai_client_raises_its_rate_limit_error(keyed: KeyedServer):
    key = keyed.keys["few"]
    with openai.OpenAI(
        base_url=f"{keyed.server.base_url}/v1", api_key=key, max_retries=0
    ) as client:
        for _ in range(2):
            client.completions.create(model="fake", prompt="hi", max_tokens=1)
        with pytest.raises(openai.RateLimitError) as refused:
            client.completions.create(model="fake", prompt="hi", max_tokens=1)
    assert refused.value.code == "rate_limit_exceeded"


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_counts_at_once_and_generated_tokens_as_they_come(
    keyed: KeyedServer, http: httpx.Client, stream: bool
):
    assert left(ask(http, keyed, "short", 8, max_tokens=2, stream=stream), "tokens") in (20, 22)
    # 30 - 8 - 2, and at most a few seconds' worth of refill since.
    second = ask(http, keyed, "short", 4, max_tokens=12, stream=stream)
    assert second.status_code == 200
    third = ask(http, keyed, "short", 12, stream=stream)
    assert third.status_code == 429
    assert "tokens_per_minute is 30" in third.json()["error"]["message"]
    assert int(third.headers["retry-after"]) >= 1
    assert len(keyed.server.loop.submitted) == 2


def test_a_prompt_over_the_whole_limit_is_let_in_once_and_leaves_a_debt(
    keyed: KeyedServer, http: httpx.Client
):
    first = ask(http, keyed, "short", 90)
    assert (first.status_code, left(first, "tokens")) == (200, 0)
    refused = ask(http, keyed, "short", 1)
    assert refused.status_code == 429
    # 90 and 2 of 30 a minute: two minutes of debt, then one token.
    assert 110 <= int(refused.headers["retry-after"]) <= 126


def test_the_prompt_of_several_choices_counts_once(keyed: KeyedServer, http: httpx.Client):
    answer = ask(http, keyed, "moody", 100, n=3, max_tokens=2)
    assert answer.status_code == 200
    # And what came back since, which is 17 tokens a second.
    assert 1000 - 100 - 6 <= left(answer, "tokens") < 1000 - 50


def test_what_no_engine_took_costs_no_tokens(keyed: KeyedServer, http: httpx.Client):
    keyed.server.loop.overload = OverloadedError("the queue is full", 1.0)
    assert [ask(http, keyed, "moody", 400).status_code for _ in range(4)] == [429] * 4
    keyed.server.loop.overload = None
    assert ask(http, keyed, "moody", 400, max_tokens=100).status_code == 200
    assert ask(http, keyed, "moody", 400).status_code == 200
    assert ask(http, keyed, "moody", 400).status_code == 429


def test_only_so_many_run_at_once_and_whoever_ends_makes_room(
    keyed: KeyedServer, http: httpx.Client
):
    loop = keyed.server.loop
    loop.may_step.clear()
    body = {"model": "fake", "prompt": "x", "max_tokens": 2, "stream": True}
    with http.stream("POST", PATH, json=body, headers=keyed.bearer("lone")):
        refused = ask(http, keyed, "lone")
        assert refused.status_code == 429
        assert "max_concurrent is 1" in refused.json()["error"]["message"]
        assert int(refused.headers["retry-after"]) >= 1
    # The client left without a token.
    loop.may_step.set()
    assert eventually(lambda: ask(http, keyed, "lone").status_code == 200)
    for fields in ({"temperature": -1}, {"max_tokens": 2}, {"stream": True}):
        ask(http, keyed, "lone", **fields)
        assert ask(http, keyed, "lone").status_code == 200


def test_new_limits_in_the_file_hold_at_once_and_what_was_used_stays_used(
    keyed: KeyedServer, http: httpx.Client
):
    def write(num_requests: int) -> None:
        limits = {"requests_per_minute": num_requests}
        write_keys(keyed.file, entry("few", keyed.keys["few"], "infer", **limits))

    def shown() -> str:
        return ask(http, keyed, "few").headers["x-ratelimit-limit-requests"]

    assert [ask(http, keyed, "few").status_code for _ in range(3)] == [200, 200, 429]
    # Written anew and the same in what it says.
    keyed.file.write_text(keyed.file.read_text() + "\n")
    assert ask(http, keyed, "few").status_code == 429
    write(5)
    assert eventually(lambda: shown() == "5")


def test_an_accounts_numbers_are_those_of_its_time():
    account = Account(KeyLimits(requests_per_minute=60, tokens_per_minute=600), 0)
    for _ in range(60):
        assert account.enter(0) is None
    assert account.enter(0) is not None
    assert account.admit_prompt(590, 0) is None
    refused = account.admit_prompt(20, 0)
    assert refused is not None
    assert refused.retry_after_s == 1.0
    assert account.headers(SECOND_NS // 2) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "1m0s",
        "x-ratelimit-limit-tokens": "600",
        "x-ratelimit-remaining-tokens": "15",
        "x-ratelimit-reset-tokens": "59s",
    }
    assert account.enter(SECOND_NS) is None


@pytest.mark.parametrize(
    ("length_ns", "shown"),
    [(0, "0s"), (1, "1ms"), (20_000_000, "20ms"), (SECOND_NS, "1s"), (59 * SECOND_NS + 1, "1m0s"),
     (360 * SECOND_NS, "6m0s")],
)  # fmt: skip
def test_times_are_written_as_clients_of_the_headers_read_them(length_ns: int, shown: str):
    assert duration(length_ns) == shown

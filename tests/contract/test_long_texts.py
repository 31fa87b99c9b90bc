"""A long prompt keeps nobody else waiting, and its ids are those of a short one's way."""

import asyncio
import threading

import httpx
import pytest

from deployments import gateway as gateway_module
from deployments.gateway import Gateway
from deployments.http import create_app
from deployments.ingress import running
from deployments.openai.tokenizer import TextTokenizer
from deployments.watch import EngineWatch
from dflash.config import EngineConfig
from tests.rigs.byte_tokenizer import byte_level_tokenizer, fallback_tokenizer, tokenizer_files
from tests.rigs.http_server import MODEL, LocalClient, open_replica, until


def body(prompt: str) -> dict[str, object]:
    return {"model": MODEL, "prompt": prompt, "max_tokens": 1}


def test_others_are_answered_while_one_long_text_at_a_time_is_encoded(
    monkeypatch: pytest.MonkeyPatch,
):
    may_finish = threading.Event()
    begun: list[str] = []
    encode_long = TextTokenizer.encode_long

    def blocked(tokenizer: TextTokenizer, text: str, *, add_special_tokens: bool = True):
        begun.append(text)
        assert may_finish.wait(20)
        return encode_long(tokenizer, text, add_special_tokens=add_special_tokens)

    monkeypatch.setattr(TextTokenizer, "encode_long", blocked)
    monkeypatch.setattr(gateway_module, "_LONG_TEXT_CHARACTERS", 8)

    async def test() -> None:
        replica, _ = await open_replica(EngineConfig())
        watch = EngineWatch(LocalClient(replica))
        app = create_app(Gateway(LocalClient(replica), watch, MODEL))
        transport = httpx.ASGITransport(app)
        async with (
            running(watch.run()),
            httpx.AsyncClient(transport=transport, base_url="http://test") as http,
        ):
            await until(lambda: watch.why_not_ready() is None)
            long = [
                asyncio.create_task(http.post("/v1/completions", json=body(text)))
                for text in ("quick brown", "quick foxes")
            ]
            await until(lambda: bool(begun))
            short = await http.post("/v1/completions", json=body("quick"))
            assert short.status_code == 200
            assert (len(begun), [each.done() for each in long]) == (1, [False, False])
            may_finish.set()
            assert [(await each).status_code for each in long] == [200, 200]
            assert len(begun) == 2
        replica.__del__()

    asyncio.run(asyncio.wait_for(test(), 30))


@pytest.mark.parametrize("tokenizer", [byte_level_tokenizer(), fallback_tokenizer()])
@pytest.mark.parametrize("add_special_tokens", [False, True])
def test_both_ways_to_encode_give_the_same_ids(tokenizer, add_special_tokens: bool):
    text_tokenizer = TextTokenizer(tokenizer_files(tokenizer))
    for text in ("", "a", "quick brown 世界 😀\n" * 500):
        assert text_tokenizer.encode_long(
            text, add_special_tokens=add_special_tokens
        ) == text_tokenizer.encode(text, add_special_tokens=add_special_tokens)

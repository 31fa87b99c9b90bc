"""From a checked body to a running request: model, prompt, ids, engine, response."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from fastapi import Request, Response

from deployments.client import EngineClient
from deployments.openai import errors
from deployments.openai.body import parse_body, read_body
from deployments.openai.chat import ChatDialect, num_logprobs_of, template_messages
from deployments.openai.choices import Choice, each_choice, interleave
from deployments.openai.completions import CompletionDialect, prompts_of
from deployments.openai.errors import RefusedError
from deployments.openai.generation import (
    Answer,
    generate_request,
    refuse_foreign_ids,
    seed_of,
)
from deployments.openai.schemas import ChatBody, CompletionBody, GenerationBody
from deployments.openai.stream import Dialect, Reply, respond
from deployments.openai.tokenizer import ChatTemplateError
from deployments.places import Places
from deployments.request_journal import RequestJournal
from deployments.watch import EngineWatch, LoadedModel
from dflash.request import GenerateRequest

# Above this, tokenising takes longer than other streams should wait for the event loop.
_LONG_TEXT_CHARACTERS = 8192


class Gateway:
    """Serves one model of the engines behind a client."""

    def __init__(self, client: EngineClient, watch: EngineWatch, model_name: str) -> None:
        self._client = client
        self.watch = watch
        self.model_name = model_name
        self._places = Places(lambda: watch.most_live)
        # Tokenising takes many times a text's size in memory; one long text at a time bounds it.
        # A thread of its own, not a semaphore: a cancelled request's text is still being encoded.
        self._long_texts = ThreadPoolExecutor(max_workers=1, thread_name_prefix="long-text")

    def require_model(self) -> LoadedModel:
        """Return the loaded model.

        Raises:
            RefusedError: No replica has loaded it yet.
        """
        refusal = self.watch.refusal()
        if refusal is not None or self.watch.model is None:
            raise RefusedError(refusal or errors.server_loading("starting", 0))
        return self.watch.model

    async def chat(self, http_request: Request) -> Response:
        """Answer `POST /v1/chat/completions`."""
        raw = await read_body(http_request)
        body, ignored = parse_body(raw, ChatBody)
        model = self._require_model_named(body.model)
        try:
            text = model.tokenizer.render_chat(template_messages(body.messages))
        except ChatTemplateError as error:
            raise RefusedError(
                errors.invalid_parameter("messages", f"messages: {error}")
            ) from error
        # The template writes the start tokens itself.
        prompt = await self._encode(model, text, add_special_tokens=False)
        num_logprobs, seed = num_logprobs_of(body), seed_of(body)
        request = generate_request(body, prompt, num_logprobs, model.card, "messages", seed)
        requests = each_choice([request], body.n or 1)
        dialect = ChatDialect(
            self._head("chatcmpl", request),
            seed,
            model.tokenizer,
            num_choices=len(requests),
            include_usage=_wants_usage(body),
        )
        headers = _ignored_header(ignored)
        return await self._respond(http_request, body, requests, dialect, headers)

    async def completions(self, http_request: Request) -> Response:
        """Answer `POST /v1/completions`."""
        raw = await read_body(http_request)
        body, ignored = parse_body(raw, CompletionBody)
        model = self._require_model_named(body.model)
        n, seed = body.n or 1, seed_of(body)
        prompts: list[GenerateRequest] = []
        echoes: list[str] = []
        for given in prompts_of(body.prompt, n):
            text, token_ids = await self._read_prompt(model, given, wants_text=bool(body.echo))
            prompts.append(
                generate_request(body, token_ids, body.logprobs, model.card, "prompt", seed)
            )
            echoes += [text] * n
        dialect = CompletionDialect(
            self._head("cmpl", prompts[0]),
            seed,
            model.tokenizer,
            echoes=echoes,
            include_usage=_wants_usage(body),
        )
        requests, headers = each_choice(prompts, n), _ignored_header(ignored)
        return await self._respond(http_request, body, requests, dialect, headers)

    async def _read_prompt(
        self, model: LoadedModel, prompt: str | tuple[int, ...], *, wants_text: bool
    ) -> tuple[str, tuple[int, ...]]:
        """Return a prompt's text where it is wanted, and its ids."""
        if isinstance(prompt, str):
            token_ids = await self._encode(model, prompt, add_special_tokens=True)
            return (prompt if wants_text else ""), token_ids
        refuse_foreign_ids("prompt", prompt, model.card.vocab_size)
        return (model.tokenizer.decode(prompt) if wants_text else ""), prompt

    async def _encode(
        self, model: LoadedModel, text: str, *, add_special_tokens: bool
    ) -> tuple[int, ...]:
        """Return a text's ids; a long text is encoded in a thread, for streams go on meanwhile."""
        if len(text) <= _LONG_TEXT_CHARACTERS:
            return model.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        encode = partial(model.tokenizer.encode_long, text, add_special_tokens=add_special_tokens)
        return await asyncio.get_running_loop().run_in_executor(self._long_texts, encode)

    def _require_model_named(self, name: str) -> LoadedModel:
        if name != self.model_name:
            raise RefusedError(errors.model_not_found(name, self.model_name))
        return self.require_model()

    def _head(self, prefix: str, request: GenerateRequest) -> dict[str, Any]:
        return {
            "id": f"{prefix}-{request.request_id}",
            "created": int(time.time()),
            "model": self.model_name,
        }

    async def _respond(
        self,
        http_request: Request,
        body: GenerationBody,
        requests: Sequence[GenerateRequest],
        dialect: Dialect,
        headers: Mapping[str, str],
    ) -> Response:
        n, stream, journal = body.n or 1, bool(body.stream), RequestJournal.of(http_request)
        journal.begin(requests, n, body.model, stream=stream)
        choices = tuple(
            Choice(self._client.generate(request), self._answer(body, request))
            for request in requests
        )
        pieces = self._places.hold(interleave(choices, journal), len(choices))
        return await respond(Reply(choices, n, pieces, dialect, headers, journal), stream=stream)

    def _answer(self, body: GenerationBody, request: GenerateRequest) -> Answer:
        stops, num_prompt = tuple(body.stop or ()), len(request.prompt_token_ids)
        tokenizer = self.require_model().tokenizer
        return Answer(tokenizer, stops, request.sampling.min_tokens, num_prompt)


def _ignored_header(ignored: tuple[str, ...]) -> dict[str, str]:
    return {"x-ignored-fields": ", ".join(ignored)} if ignored else {}


def _wants_usage(body: GenerationBody) -> bool:
    return body.stream_options is not None and bool(body.stream_options.include_usage)

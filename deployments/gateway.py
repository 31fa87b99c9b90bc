"""From a checked body to a running request: model, prompt, ids, engine, response."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from fastapi import Request, Response

from deployments.client import QUEUE_FULL, RETRY_AFTER_S, EngineClient
from deployments.openai import errors
from deployments.openai.body import parse_body, read_body
from deployments.openai.chat import ChatDialect, num_logprobs_of, template_messages
from deployments.openai.completions import CompletionDialect, single_prompt
from deployments.openai.errors import RefusedError
from deployments.openai.generation import Answer, generate_request, refuse_foreign_ids
from deployments.openai.schemas import ChatBody, CompletionBody, GenerationBody
from deployments.openai.stream import Dialect, Reply, respond
from deployments.openai.tokenizer import ChatTemplateError
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
        request = generate_request(body, prompt, num_logprobs_of(body), model.card, "messages")
        dialect = ChatDialect(
            self._head("chatcmpl", request),
            request.seed,
            model.tokenizer,
            include_usage=_wants_usage(body),
        )
        journal = RequestJournal.of(http_request)
        journal.begin(request, body.model, 1, stream=bool(body.stream))
        return await self._respond(body, request, dialect, ignored, journal)

    async def completions(self, http_request: Request) -> Response:
        """Answer `POST /v1/completions`."""
        raw = await read_body(http_request)
        body, ignored = parse_body(raw, CompletionBody)
        model = self._require_model_named(body.model)
        prompt = single_prompt(body.prompt)
        if isinstance(prompt, str):
            text = prompt
            prompt = await self._encode(model, prompt, add_special_tokens=True)
        else:
            refuse_foreign_ids("prompt", prompt, model.card.vocab_size)
            text = model.tokenizer.decode(prompt) if body.echo else ""
        request = generate_request(body, prompt, body.logprobs, model.card, "prompt")
        dialect = CompletionDialect(
            self._head("cmpl", request),
            request.seed,
            model.tokenizer,
            echo=text if body.echo else "",
            include_usage=_wants_usage(body),
        )
        journal = RequestJournal.of(http_request)
        journal.begin(request, body.model, 1, stream=bool(body.stream))
        return await self._respond(body, request, dialect, ignored, journal)

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

    def _require_room(self) -> None:
        """Refuse what would exceed the slots and the queue together."""
        most = self.watch.most_live
        if most is not None and self._client.num_live >= most:
            raise RefusedError(errors.queue_full(QUEUE_FULL, RETRY_AFTER_S))

    def _head(self, prefix: str, request: GenerateRequest) -> dict[str, Any]:
        return {
            "id": f"{prefix}-{request.request_id}",
            "created": int(time.time()),
            "model": self.model_name,
        }

    async def _respond(
        self,
        body: GenerationBody,
        request: GenerateRequest,
        dialect: Dialect,
        ignored: tuple[str, ...],
        journal: RequestJournal,
    ) -> Response:
        answer = Answer(
            self.require_model().tokenizer,
            tuple(body.stop or ()),
            request.sampling.min_tokens,
            len(request.prompt_token_ids),
        )
        self._require_room()
        headers = {"x-ignored-fields": ", ".join(ignored)} if ignored else {}
        steps = self._client.generate(request)
        return await respond(
            Reply(steps, answer, dialect, headers, journal), stream=bool(body.stream)
        )


def _wants_usage(body: GenerationBody) -> bool:
    return body.stream_options is not None and bool(body.stream_options.include_usage)

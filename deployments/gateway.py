"""From a checked body to a running request: model, prompt, ids, engine, response."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from fastapi import Request, Response

from deployments.client import EngineClient
from deployments.guard.key_limits import admit_prompts, metered
from deployments.openai import errors
from deployments.openai.body import parse_body, read_body
from deployments.openai.chat import ChatDialect, num_logprobs_of
from deployments.openai.choices import Choice, each_choice, interleave
from deployments.openai.completions import CompletionDialect, prompts_of
from deployments.openai.constraint import call_reader_of, functions_of, template_variables
from deployments.openai.errors import RefusedError
from deployments.openai.generation import (
    Answer,
    generate_request,
    refuse_foreign_ids,
    seed_of,
)
from deployments.openai.messages import Message, template_messages
from deployments.openai.schemas import ChatBody, CompletionBody, GenerationBody
from deployments.openai.stream import Dialect, Reply, respond
from deployments.openai.tokenizer import ChatTemplateError, UnreadVariableError
from deployments.places import Places
from deployments.request_journal import RequestJournal
from deployments.watch import EngineWatch, LoadedModel
from dflash.request import GenerateRequest

# Above this, tokenising takes longer than other streams should wait for the event loop.
_LONG_TEXT_CHARACTERS = 8192


class Gateway:
    """Serves one model of the engines behind a client."""

    def __init__(
        self,
        client: EngineClient,
        watch: EngineWatch,
        model_name: str,
        *,
        response_metrics: bool = False,
    ) -> None:
        """Prepare to serve.

        Args:
            client: The engines.
            watch: What is known of them.
            model_name: The name that clients ask for.
            response_metrics: Whether answers have metrics where their clients do not say.
        """
        self._client = client
        self._response_metrics = response_metrics
        self.watch = watch
        self.model_name = model_name
        self._places = Places(lambda: watch.bounds)
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
        model = self.require_model_named(body.model)
        variables = template_variables(
            body.chat_template_kwargs, functions_of(body), model.tokenizer
        )
        text = self.render(model, body.messages, variables)
        # The template writes the start tokens itself.
        prompt = await self.encode(model, text, add_special_tokens=bool(body.add_special_tokens))
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
        headers = ignored_header(ignored)
        return await self._respond(http_request, body, requests, dialect, headers)

    async def completions(self, http_request: Request) -> Response:
        """Answer `POST /v1/completions`."""
        raw = await read_body(http_request)
        body, ignored = parse_body(raw, CompletionBody)
        model = self.require_model_named(body.model)
        n, seed = body.n or 1, seed_of(body)
        prompts: list[GenerateRequest] = []
        echoes: list[str] = []
        for given in prompts_of(body.prompt, n):
            token_ids = await self._prompt_ids(model, given, body)
            prompts.append(
                generate_request(body, token_ids, body.logprobs, model.card, "prompt", seed)
            )
            echoes += [_echo_of(given, model) if body.echo else ""] * n
        dialect = CompletionDialect(
            self._head("cmpl", prompts[0]),
            seed,
            model.tokenizer,
            echoes=echoes,
            include_usage=_wants_usage(body),
        )
        requests, headers = each_choice(prompts, n), ignored_header(ignored)
        return await self._respond(http_request, body, requests, dialect, headers)

    def render(
        self,
        model: LoadedModel,
        messages: Sequence[Message],
        variables: Mapping[str, Any] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """Return a chat's text.

        Raises:
            RefusedError: The model's template does not take these messages or variables.
        """
        known = template_messages(messages, model.tokenizer)
        try:
            return model.tokenizer.render_chat(
                known, variables or {}, add_generation_prompt=add_generation_prompt
            )
        except UnreadVariableError as error:
            raise RefusedError(
                errors.unsupported_parameter("chat_template_kwargs", str(error))
            ) from error
        except ChatTemplateError as error:
            raise RefusedError(
                errors.invalid_parameter("messages", f"messages: {error}")
            ) from error

    async def encode(
        self, model: LoadedModel, text: str, *, add_special_tokens: bool
    ) -> tuple[int, ...]:
        """Return a text's ids; a long text is encoded in a thread, for streams go on meanwhile."""
        if len(text) <= _LONG_TEXT_CHARACTERS:
            return model.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        encode = partial(model.tokenizer.encode_long, text, add_special_tokens=add_special_tokens)
        return await asyncio.get_running_loop().run_in_executor(self._long_texts, encode)

    async def _prompt_ids(
        self, model: LoadedModel, prompt: str | tuple[int, ...], body: CompletionBody
    ) -> tuple[int, ...]:
        if isinstance(prompt, str):
            return await self.encode(
                model, prompt, add_special_tokens=body.add_special_tokens is not False
            )
        refuse_foreign_ids("prompt", prompt, model.card.vocab_size)
        return prompt

    def require_model_named(self, name: str | None) -> LoadedModel:
        """Return the loaded model; where no name is needed, None is any.

        Raises:
            RefusedError: It has another name, or no replica has loaded it yet.
        """
        if name is not None and name != self.model_name:
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
        if self.watch.board.orders.drain.is_on:
            raise RefusedError(errors.server_draining())
        n, stream, journal = body.n or 1, bool(body.stream), RequestJournal.of(http_request)
        journal.begin(requests, n, body.model, stream=stream)
        admit_prompts(requests)
        choices = tuple(
            Choice(
                metered(self._client.generate(request, journal.carrier)),
                self._answer(body, request),
            )
            for request in requests
        )
        lengths = [len(request.prompt_token_ids) for request in requests]
        pieces = self._places.hold(interleave(choices, journal), lengths)
        options = body.stream_options
        reply = Reply(
            choices,
            n,
            pieces,
            dialect,
            headers,
            journal,
            counts_in_each=options is not None and bool(options.continuous_usage_stats),
            has_metrics=self._has_metrics(body),
        )
        return await respond(reply, stream=stream)

    def _has_metrics(self, body: GenerationBody) -> bool:
        """Whether an answer has metrics: as its client says, or else as the server is set up.

        A stream has them beside its counts. Where a client asked for neither, a frame without a
        choice would surprise it.
        """
        if body.metrics is not None:
            return body.metrics
        return self._response_metrics and (not body.stream or _wants_usage(body))

    def _answer(self, body: GenerationBody, request: GenerateRequest) -> Answer:
        stops, num_prompt = tuple(body.stop or ()), len(request.prompt_token_ids)
        tokenizer = self.require_model().tokenizer
        calls = call_reader_of(body)
        return Answer(tokenizer, stops, request.sampling.min_tokens, num_prompt, calls)


def _echo_of(prompt: str | tuple[int, ...], model: LoadedModel) -> str:
    return prompt if isinstance(prompt, str) else model.tokenizer.decode(prompt)


def ignored_header(ignored: tuple[str, ...]) -> dict[str, str]:
    """Return the header that names the fields which did nothing, where there were any."""
    return {"x-ignored-fields": ", ".join(ignored)} if ignored else {}


def _wants_usage(body: GenerationBody) -> bool:
    return body.stream_options is not None and bool(body.stream_options.include_usage)

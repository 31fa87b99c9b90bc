"""The routes that show what the model's tokenizer makes of a text, a chat, or ids."""

from collections.abc import Sequence

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from deployments.gateway import Gateway, ignored_header
from deployments.openai import errors
from deployments.openai.body import parse_body, read_body
from deployments.openai.constraint import template_variables
from deployments.openai.errors import RefusedError
from deployments.openai.generation import refuse_foreign_ids
from deployments.openai.messages import Message
from deployments.openai.tokenization import (
    MAX_CHARACTERS,
    DetokenizeBody,
    TokenizeBody,
    refuse_unclear,
    tokenize_body,
)
from deployments.openai.tools import tools_in_use
from deployments.watch import LoadedModel


def add_tokenize_routes(app: FastAPI, gateway: Gateway) -> None:
    """Add `/tokenize` and `/detokenize`."""

    def chat_text(body: TokenizeBody, messages: Sequence[Message], model: LoadedModel) -> str:
        functions = tools_in_use(body.tools, None)
        variables = template_variables(body.chat_template_kwargs, functions, model.tokenizer)
        with_prompt = body.add_generation_prompt is not False
        text = gateway.render(model, messages, variables, add_generation_prompt=with_prompt)
        if len(text) > MAX_CHARACTERS:
            reason = f"messages have {len(text)} characters; send {MAX_CHARACTERS} at most"
            raise RefusedError(errors.invalid_parameter("messages", reason))
        return text

    @app.post("/tokenize")
    async def tokenize(request: Request) -> JSONResponse:
        body, ignored = parse_body(await read_body(request), TokenizeBody)
        model = gateway.require_model_named(body.model)
        refuse_unclear(body)
        text = body.prompt if body.messages is None else chat_text(body, body.messages, model)
        # A template writes the start tokens itself.
        special = body.messages is None
        if body.add_special_tokens is not None:
            special = body.add_special_tokens
        token_ids = await gateway.encode(model, text or "", add_special_tokens=special)
        answer = tokenize_body(
            token_ids,
            model.tokenizer,
            model.card.max_model_len,
            with_strings=bool(body.return_token_strs),
        )
        return JSONResponse(answer, headers=ignored_header(ignored))

    @app.post("/detokenize")
    async def detokenize(request: Request) -> JSONResponse:
        body, ignored = parse_body(await read_body(request), DetokenizeBody)
        model = gateway.require_model_named(body.model)
        refuse_foreign_ids("tokens", body.tokens, model.card.vocab_size)
        text = model.tokenizer.spell(body.tokens)
        return JSONResponse({"prompt": text}, headers=ignored_header(ignored))

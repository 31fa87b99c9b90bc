"""The choices of one answer: each grows by itself, and all of them are read as one."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from deployments.openai import errors
from deployments.openai.errors import RefusedError
from deployments.openai.generation import Answer, Piece, Usage
from deployments.request_journal import RequestJournal
from deployments.wire import Step
from dflash.request import GenerateRequest

ChoicePieces = AsyncGenerator[tuple[int, Piece], None]


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice of an answer.

    Attributes:
        steps: The engine's messages, not yet begun.
        answer: What they grow.
    """

    steps: AsyncGenerator[Step, None]
    answer: Answer


def each_choice(prompts: Sequence[GenerateRequest], n: int) -> tuple[GenerateRequest, ...]:
    """Return one engine request for each choice, the first prompt's choices first.

    They differ by `GenerateRequest.choice`, so by their noise: with one seed the first choice is
    that of ``n=1``, and equal prompts have unlike answers.

    Args:
        prompts: One request a prompt.
        n: Choices of each.
    """
    name = prompts[0].request_id
    all_of_them = [prompt for prompt in prompts for _ in range(n)]
    return tuple(
        replace(request, request_id=f"{name}.{index}" if index else name, choice=index)
        for index, request in enumerate(all_of_them)
    )


def total_usage(choices: Sequence[Choice], n: int) -> Usage:
    """Return the counts of all choices; a prompt counts once, however many answer it."""
    usages = [choice.answer.usage for choice in choices]
    return Usage(
        sum(usage.prompt_tokens for usage in usages[::n]),
        sum(usage.completion_tokens for usage in usages),
        sum(usage.cached_tokens for usage in usages[::n]),
    )


async def pieces_of(
    choice: Choice, index: int, journal: RequestJournal
) -> AsyncGenerator[Piece, None]:
    """Yield an empty piece once the engine took the choice, then what each step adds.

    The last piece has a finish reason; then, or when the reader leaves, the engine's request
    is ended.

    Raises:
        RefusedError: The engine refused, or failed.
    """
    async with aclosing(choice.steps) as steps:
        async for step in steps:
            if step.error is not None:
                raise RefusedError(step.error)
            journal.note(step, index)
            piece = choice.answer.push(step)
            if piece.finish_reason is not None:
                num_tokens = choice.answer.usage.completion_tokens
                journal.finish(piece.finish_reason, num_tokens, index)
                yield piece
                return
            yield piece
    raise RefusedError(
        errors.engine_failure("the engine ended the request without a finish reason; retry it")
    )


async def interleave(choices: Sequence[Choice], journal: RequestJournal) -> ChoicePieces:
    """Yield the pieces of all choices with their indices, as they come.

    A fault of one ends all, and so does a reader that leaves.

    Args:
        choices: In the order of their indices.
        journal: Told of each message, and how each choice ends.

    Raises:
        RefusedError: Of whichever choice fails first.
    """
    if len(choices) == 1:
        # Most answers have one choice, which needs no task a step.
        async with aclosing(pieces_of(choices[0], 0, journal)) as pieces:
            async for piece in pieces:
                yield 0, piece
        return
    sources = [pieces_of(choice, index, journal) for index, choice in enumerate(choices)]
    awaited = {_next_of(source): index for index, source in enumerate(sources)}
    try:
        while awaited:
            done, _ = await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=awaited.__getitem__):
                index = awaited.pop(task)
                piece = task.result()
                if piece is not None:
                    # One piece of each is under way: a slow reader gets fewer, larger ones.
                    awaited[_next_of(sources[index])] = index
                    yield index, piece
    finally:
        for task in awaited:
            task.cancel()
        await asyncio.gather(*awaited, return_exceptions=True)
        for source in sources:
            await source.aclose()


def _next_of(pieces: AsyncGenerator[Piece, None]) -> asyncio.Task[Piece | None]:
    async def take() -> Piece | None:
        return await anext(pieces, None)

    return asyncio.create_task(take())

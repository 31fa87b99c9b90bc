"""What an ingress holds at once: as many choices as there are places, and bounded prompts."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from deployments.openai.choices import ChoicePieces
from deployments.openai.errors import ErrorCode, RefusedError
from deployments.openai.generation import Piece
from deployments.places import Places
from deployments.room import Bounds

TAKEN, END = Piece(""), Piece("", finish_reason="stop")


async def pieces(*each: tuple[int, Piece]) -> ChoicePieces:
    for one in each:
        yield one


async def read(held: AsyncIterator[tuple[int, Piece]], count: int) -> None:
    for _ in range(count):
        await anext(held)


def refusal_of(held: ChoicePieces) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        asyncio.run(read(held, 1))
    return refused.value


def test_prompts_that_no_engine_took_are_bounded_in_tokens():
    places = Places(lambda: Bounds(waiting_tokens=100))

    async def test() -> None:
        first = places.hold(pieces((0, TAKEN), (0, END)), [70])
        # A generator begins when it is read: only then does it wait for an engine.
        waiting = asyncio.Event()

        async def never() -> ChoicePieces:
            await waiting.wait()
            yield 0, TAKEN

        queued = asyncio.create_task(read(places.hold(never(), [70]), 1))
        await asyncio.sleep(0)
        with pytest.raises(RefusedError) as refused:
            await read(first, 1)
        assert refused.value.error.code is ErrorCode.QUEUE_FULL
        assert "70 prompt tokens wait for an engine" in refused.value.error.message
        # Up to the bound they may wait, and what an engine took waits no more.
        fits = places.hold(pieces((0, TAKEN), (0, END)), [30])
        await read(fits, 1)
        waiting.set()
        await queued
        await read(places.hold(pieces((0, TAKEN)), [100]), 1)

    asyncio.run(test())


def test_a_prompt_over_the_whole_bound_may_wait_alone():
    places = Places(lambda: Bounds(waiting_tokens=100))
    asyncio.run(read(places.hold(pieces((0, TAKEN)), [900]), 1))


def test_each_choice_waits_until_its_own_first_piece_and_a_reader_that_leaves_takes_all_along():
    places = Places(lambda: Bounds(waiting_tokens=100))

    async def test() -> None:
        both = places.hold(pieces((1, TAKEN), (0, TAKEN)), [40, 40])
        await read(both, 1)
        with pytest.raises(RefusedError):
            await read(places.hold(pieces((0, TAKEN)), [61]), 1)
        await both.aclose()
        await read(places.hold(pieces((0, TAKEN)), [100]), 1)
        await read(places.hold(pieces((0, TAKEN)), [100]), 1)

    asyncio.run(test())


def test_more_choices_than_places_are_refused_for_good_and_too_many_at_once_for_now():
    places = Places(lambda: Bounds(places=2))
    assert refusal_of(places.hold(pieces(), [1] * 3)).error.code is ErrorCode.INVALID_PARAMETER

    async def test() -> None:
        one = places.hold(pieces((0, TAKEN), (0, END)), [1])
        await read(one, 1)
        with pytest.raises(RefusedError) as refused:
            await read(places.hold(pieces((0, TAKEN)), [1, 1]), 1)
        assert refused.value.error.code is ErrorCode.QUEUE_FULL
        await read(one, 1)
        await read(places.hold(pieces((0, TAKEN)), [1, 1]), 1)

    asyncio.run(test())

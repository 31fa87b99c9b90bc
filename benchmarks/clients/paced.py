"""A server whose speed is known to the millisecond, and so what a client will measure."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import ClassVar

from deployments.wire import Step
from dflash.request import Decoded, GenerateRequest
from tests.rigs.http_server import LocalClient


@dataclass(frozen=True, slots=True)
class Pace:
    """When tokens come.

    Attributes:
        first_s: From a request to its first message, seconds.
        step_s: Between two messages.
        tokens_per_step: Tokens of a message; a clock that counts messages is wrong by this.
    """

    first_s: float = 1.0
    step_s: float = 0.05
    tokens_per_step: int = 2

    def ttft_ms(self) -> float:
        """Return the time to the first token."""
        return 1e3 * self.first_s

    def tpot_ms(self, num_tokens: int) -> float:
        """Return the time per output token after the first."""
        num_steps = -(-num_tokens // self.tokens_per_step)
        return 1e3 * self.step_s * (num_steps - 1) / (num_tokens - 1)


class PacedClient(LocalClient):
    """Answers every request at one pace, however many there are."""

    pace: ClassVar[Pace] = Pace()

    async def generate(
        self, request: GenerateRequest, carrier: str = ""
    ) -> AsyncGenerator[Step, None]:
        """Yield what an engine would, each step at its time."""
        self.num_live += 1
        clock = asyncio.get_running_loop().time
        start_s = clock()
        pace = self.pace
        letters = [10 + (request.seed + index) % 20 for index in range(request.max_tokens)]
        try:
            yield Step(queue_time_s=0.0, replica="paced")
            for at in range(0, len(letters), pace.tokens_per_step):
                due_s = start_s + pace.first_s + at // pace.tokens_per_step * pace.step_s
                # By the clock and not step by step, so that lateness does not add up.
                await asyncio.sleep(max(0.0, due_s - clock()))
                ids = tuple(letters[at : at + pace.tokens_per_step])
                is_last = at + len(ids) == len(letters)
                drafted = pace.tokens_per_step - 1
                yield Step(
                    ids,
                    finish_reason="length" if is_last else None,
                    decoded=(Decoded("script", 3, drafted),),
                )
        finally:
            self.num_live -= 1

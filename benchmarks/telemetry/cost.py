"""What tracing every request costs: CPU per token with and without, in turns."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.http.client import ChatClient
from benchmarks.report import progress
from benchmarks.telemetry.collector import VARIABLE, collector_apart, variable
from tests.rigs.http_server import MODEL, serving

TOKENS_A_MESSAGE = 4
# Without a pause between steps, messages would be joined before anybody read them.
STEP_S = 0.01
_US_PER_S = 1e6


@dataclass(frozen=True, slots=True)
class Load:
    """What one visit asks for.

    Attributes:
        num_requests: Requests.
        concurrency: So many at a time.
        new_tokens: Tokens of each.
    """

    num_requests: int = 32
    concurrency: int = 8
    new_tokens: int = 160


@dataclass(frozen=True, slots=True)
class Round:
    """CPU per token of three visits, microseconds: server, scripted engine and client together.

    Attributes:
        off_us: Without tracing.
        on_us: With a span and its part for every request.
        again_us: Without it again, from another server like the first.
    """

    off_us: float
    on_us: float
    again_us: float

    @property
    def cost_us(self) -> float:
        """What tracing adds."""
        return self.on_us - (self.off_us + self.again_us) / 2

    @property
    def noise_us(self) -> float:
        """What two servers that do the same differ by."""
        return self.again_us - self.off_us


def rounds_of(num_rounds: int, load: Load) -> list[Round]:
    """Return the rounds of three servers side by side, each visited in turn."""
    with (
        collector_apart() as endpoint,
        _visit(None, load) as off,
        _visit(endpoint, load) as on,
        _visit(None, load) as again,
    ):
        for visit in (off, on, again):
            visit()
        rounds: list[Round] = []
        with progress(num_rounds, "rounds") as bar:
            for index in range(num_rounds):
                # Each begins as often as the others: what comes later may be slower.
                order = (off, on, again) if index % 2 else (again, on, off)
                took = {visit: visit() for visit in order}
                rounds.append(Round(took[off], took[on], took[again]))
                bar.update()
        return rounds


def median_of(values: list[float]) -> float:
    """Return their median."""
    return statistics.median(values)


@contextmanager
def _visit(endpoint: str | None, load: Load) -> Iterator[Callable[[], float]]:
    """Yield what serves a load and returns the CPU it took per token."""
    with variable(VARIABLE, endpoint), serving() as server:
        server.loop.tokens_per_step, server.loop.step_s = TOKENS_A_MESSAGE, STEP_S
        client = ChatClient(int(server.base_url.rpartition(":")[2]), MODEL)
        texts = [f"question {index}" for index in range(load.num_requests)]

        def visit() -> float:
            before_s = time.process_time()
            client.visit(texts, load.concurrency, load.new_tokens)
            used_s = time.process_time() - before_s
            return used_s * _US_PER_S / (load.num_requests * load.new_tokens)

        yield visit

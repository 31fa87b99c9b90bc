"""What an engine under measurement reads and writes: one JSON object a line.

The runner writes a `Description` once its engine is ready. It then answers each `Workload` it
reads with a `Generation`, or with ``{"error": text}``, and leaves when its input ends. Only the
standard library is imported here: the file runs in every peer's environment.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Description:
    """What is measured.

    Attributes:
        version: Of the engine.
        weights: Type of the weights, such as ``bfloat16`` or ``Q4_1``.
        threads: Threads that compute.
        settings: What was set, in a few words.
    """

    version: str
    weights: str
    threads: int
    settings: str


@dataclass(frozen=True, slots=True)
class Workload:
    """Greedy requests of fixed output length, so many in flight at a time.

    Attributes:
        prompts: Token ids of each request.
        concurrency: Most requests in flight; the next one enters as one finishes.
        new_tokens: Tokens to emit for each, end-of-sequence ids ignored.
    """

    prompts: list[list[int]]
    concurrency: int
    new_tokens: int


@dataclass(frozen=True, slots=True)
class Generation:
    """What came out.

    Attributes:
        seconds: From the first submission to the last token, prefill included.
        token_ids: New tokens of each request, in the order of the prompts.
        step_s: Median time between two tokens of one request; None where it was not seen.
    """

    seconds: float
    token_ids: list[list[int]]
    step_s: float | None = None


class Engine(Protocol):
    """One engine, loaded."""

    def describe(self) -> Description:
        """Return what is measured."""
        ...

    def generate(self, workload: Workload) -> Generation:
        """Serve the workload and time it."""
        ...


@dataclass(slots=True)
class ClosedLoop:
    """Keeps a number of requests in flight in an engine that is stepped by its caller.

    Attributes:
        submit: Gives the engine one request: its index and its prompt.
        step: Runs one step and returns the requests it finished: index and all new tokens.
    """

    submit: Callable[[int, Sequence[int]], None]
    step: Callable[[], list[tuple[int, list[int]]]]
    _finished: dict[int, list[int]] = field(default_factory=dict)

    def run(self, workload: Workload) -> list[list[int]]:
        """Return the new tokens of each request, in the order of the prompts."""
        entered = 0
        while len(self._finished) < len(workload.prompts):
            while entered < len(workload.prompts) and (
                entered - len(self._finished) < workload.concurrency
            ):
                self.submit(entered, workload.prompts[entered])
                entered += 1
            self._finished.update(self.step())
        return [self._finished[index] for index in range(len(workload.prompts))]


def serve(load: Callable[[], Engine]) -> None:
    """Load the engine and answer workloads until the input ends."""
    # Engines print; the answers keep the real standard output for themselves.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(content: dict[str, object]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    engine = load()
    answer(asdict(engine.describe()))
    for line in sys.stdin:
        try:
            generation = engine.generate(Workload(**json.loads(line)))
        except Exception as error:  # noqa: BLE001 - the other side must hear of any failure
            answer({"error": f"{type(error).__name__}: {error}"})
        else:
            answer(asdict(generation))

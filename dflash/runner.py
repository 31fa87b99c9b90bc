"""The target over a batch: a loaded model behind the engine's `Target` contract."""

from dataclasses import dataclass
from typing import Protocol

from dflash.batch import Batch
from dflash.target import TargetFacts, TargetOutput


class Executor(Protocol):
    """One form of running a program."""

    @property
    def form(self) -> str:
        """Which kernels compute it; numbers are equal within one form on one machine."""
        ...

    def forward(self, batch: Batch, taps: tuple[int, ...] = ()) -> TargetOutput:
        """Compute a batch, write its keys and values to the pages, return what was asked."""
        ...


@dataclass(frozen=True, slots=True)
class Runner:
    """A loaded target.

    Attributes:
        facts: What the scheduler needs to know.
        executor: What computes it.
    """

    facts: TargetFacts
    executor: Executor

    def forward(self, batch: Batch, taps: tuple[int, ...] = ()) -> TargetOutput:
        """Compute a batch, write its keys and values to the pages, return what was asked."""
        return self.executor.forward(batch, taps)

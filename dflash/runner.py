"""The target over a batch: a loaded model behind the engine's `Target` contract."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from dflash.batch import Batch
from dflash.target import TargetFacts, TargetOutput


class Executor(Protocol):
    """One form of running a program over pages, a target's or a drafter's."""

    @property
    def form(self) -> str:
        """Which kernels compute it; numbers are equal within one form on one machine."""
        ...

    def forward(self, batch: Batch, taps: tuple[int, ...] = ()) -> TargetOutput:
        """Compute a batch, write its keys and values to the pages, return what was asked."""
        ...

    def run(self, batch: Batch) -> Mapping[str, Tensor]:
        """Compute a batch and return ``program.outputs`` by name; a drafter's way in.

        Nothing is tapped. The memory may be reused by the next call.

        Shapes:
            each output: ``[num_logits or num_tokens, width]``, in the buffer's type.
        """
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

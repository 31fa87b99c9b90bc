"""What the engine needs of a target model: its facts, and one forward over token runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from dflash.batch import Batch


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """Facts of a loaded target.

    Attributes:
        vocab_size: Ids are in ``[0, vocab_size)``.
        max_model_len: Most positions a sequence can have, prompt and output together.
        eos_token_ids: Ids that end a sequence unless ``ignore_eos``.
        page_size: Tokens a KV page holds.
        num_pages: KV pages the target allocated.
        num_layers: Decoder layers; taps name them 0 to ``num_layers - 1``, and
            `dflash.program.EMBEDDING_TAP` what the first of them reads.
    """

    vocab_size: int
    max_model_len: int
    eos_token_ids: tuple[int, ...]
    page_size: int
    num_pages: int
    num_layers: int


@dataclass(frozen=True, slots=True)
class TargetOutput:
    """What one forward returned.

    Shapes:
        logits: ``[num_logits, vocab]`` float32, in the order of ``batch.logit_rows``.
        hidden: For each tapped layer ``[num_tokens, hidden]``, that layer's output.

    The memory of both may be reused by the next forward: copy what must outlive the step.
    """

    logits: Tensor
    hidden: Mapping[int, Tensor] = field(default_factory=dict)


class Target(Protocol):
    """A target model with its KV pages, owned by one thread."""

    @property
    def facts(self) -> TargetFacts:
        """The facts the scheduler and the checks need."""
        ...

    def forward(self, batch: Batch, taps: tuple[int, ...] = ()) -> TargetOutput:
        """Compute the batch, write its keys and values to the pages, return what was asked.

        The numbers of a row depend only on that row's own sequence up to its position.
        """
        ...

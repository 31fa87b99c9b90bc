"""A drafter that says what a script makes of the right continuation, and proves its context."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from torch import Tensor

from benchmarks.rigs.hash_lm import HashLM
from dflash.drafters.base import ContextRows, DrafterFacts, DraftRow
from dflash.target import TargetFacts

# What the target will choose after a row's anchor, to its end: at least as much as is asked for,
# unless the sequence ends before that.
Right = Callable[[DraftRow], tuple[int, ...]]
# The draft, made of a row and of its right continuation, cut to the draft tokens asked for.
Script = Callable[[DraftRow, tuple[int, ...]], tuple[int, ...]]

SCRIPTED = DrafterFacts("script", (0,), 7, max_context=1 << 20, drafts_whole_block=True)


class ContextError(Exception):
    """The drafter's pages do not hold the committed prefix."""


class ScriptDrafter:
    """Implements `dflash.drafters.base.Drafter` with a script in the place of a network.

    Its context is exact: each slot holds the position it was written for and, with `HashLM`, the
    tag that the target's tap handed out. Before it drafts it compares them with the positions,
    and with what the target holds in the same pages.

    Attributes:
        script: What it proposes; may be replaced between two steps.
        num_proposals: Calls of `propose`.
        asked: Rows of the last call.
        fault: Raised by `observe` where set.
    """

    def __init__(
        self,
        target: TargetFacts,
        right: Right,
        script: Script,
        *,
        model: HashLM | None = None,
        facts: DrafterFacts = SCRIPTED,
    ) -> None:
        """Prepare empty pages.

        Args:
            target: Facts of the target.
            right: The right continuation of a row.
            script: What is made of it.
            model: The target, where its taps are tags.
            facts: Its name and bounds.
        """
        self.script = script
        self.num_proposals = 0
        self.asked: tuple[DraftRow, ...] = ()
        self.fault: Exception | None = None
        self._facts = facts
        self._right = right
        self._model = model
        self._page_size = target.page_size
        num_slots = target.num_pages * target.page_size
        self._positions = np.full(num_slots, -1)
        self._tags = np.zeros((num_slots, 5), np.float32)

    @property
    def facts(self) -> DrafterFacts:
        """The facts that scheduling needs."""
        return self._facts

    def propose(self, rows: Sequence[DraftRow]) -> list[tuple[int, ...]]:
        """Return what the script makes of each row.

        Raises:
            ContextError: A row's pages do not hold its prefix.
        """
        self.num_proposals += 1
        self.asked = tuple(rows)
        for row in rows:
            self._prove(row)
        return [self.script(row, self._right(row)[: row.num_drafts]) for row in rows]

    def observe(self, features: Tensor, commits: Sequence[ContextRows]) -> None:
        """Keep the positions, and the tags of `HashLM`.

        Raises:
            ContextError: A commit does not follow on what its pages hold.
        """
        if self.fault is not None:
            raise self.fault
        for commit in commits:
            slots = self._slots(commit.page_table, commit.start + len(commit.rows))
            before = self._positions[slots[: commit.start]]
            if not np.array_equal(before, np.arange(commit.start)):
                raise ContextError(f"context from {commit.start} on follows on {before.tolist()}")
            own = slots[commit.start :]
            self._positions[own] = np.arange(commit.start, len(slots))
            if self._model is not None:
                self._tags[own] = features[commit.rows.start : commit.rows.stop].numpy()

    def release_context(self) -> None:
        """Hold no position and no tag any more."""
        self._positions[:] = -1
        self._tags[:] = 0

    def _prove(self, row: DraftRow) -> None:
        slots = self._slots(row.page_table, row.position)
        if not np.array_equal(self._positions[slots], np.arange(row.position)):
            raise ContextError(
                f"a context of {row.position} tokens holds {self._positions[slots].tolist()}"
            )
        if self._model is not None and not np.array_equal(
            self._tags[slots], self._model.tags(slots)
        ):
            raise ContextError(f"a context of {row.position} tokens is not that of its sequence")

    def _slots(self, page_table: Sequence[int], num_tokens: int) -> np.ndarray:
        index = np.arange(num_tokens)
        pages = np.asarray(page_table, np.int64)[index // self._page_size]
        return pages * self._page_size + index % self._page_size


def right_of(answers: Mapping[tuple[int, int], Sequence[int]]) -> Right:
    """Return the right continuation by a table.

    Args:
        answers: Prompt, output and, where one ended it, the stop id of each request, by its seed
            and choice; so requests that run together need different ones.
    """

    def right(row: DraftRow) -> tuple[int, ...]:
        ids = answers[row.seed, row.choice]
        return tuple(ids[row.position + 1 : row.position + 1 + row.num_drafts])

    return right


def all_right(row: DraftRow, right: tuple[int, ...]) -> tuple[int, ...]:
    """Propose what the target will choose."""
    return right


def none(row: DraftRow, right: tuple[int, ...]) -> tuple[int, ...]:
    """Propose nothing."""
    return ()


def failing(row: DraftRow, right: tuple[int, ...]) -> tuple[int, ...]:
    """Raise."""
    raise RuntimeError("the script says fail")


def all_wrong(vocab_size: int) -> Script:
    """Propose only what the target will not choose, in full length."""
    return right_up_to(0, vocab_size)


def right_up_to(count: int, vocab_size: int) -> Script:
    """Propose this many right ids and then wrong ones, in full length."""

    def script(row: DraftRow, right: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            id_ if index < count else (id_ + 1) % vocab_size
            for index, id_ in enumerate(_padded(row, right))
        )

    return script


def random_wrong(chance: float, vocab_size: int, seed: int) -> Script:
    """Propose right ids, each replaced by a random one with this chance, in random length."""
    draw = random.Random(seed)

    def script(row: DraftRow, right: tuple[int, ...]) -> tuple[int, ...]:
        ids = _padded(row, right)[: draw.randint(0, row.num_drafts)]
        return tuple(draw.randrange(vocab_size) if draw.random() < chance else id_ for id_ in ids)

    return script


def eos_at(index: int, eos_token_id: int) -> Script:
    """Propose right ids but for one end of sequence, in full length."""

    def script(row: DraftRow, right: tuple[int, ...]) -> tuple[int, ...]:
        ids = _padded(row, right)
        return (*ids[:index], eos_token_id, *ids[index + 1 :])[: row.num_drafts]

    return script


def _padded(row: DraftRow, right: Iterable[int]) -> tuple[int, ...]:
    """Return ids in the full length; what comes after a sequence's end is nobody's choice."""
    return (*right, *(0,) * row.num_drafts)[: row.num_drafts]

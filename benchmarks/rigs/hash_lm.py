"""A target whose next token is a hash of everything its pages hold.

Exact in integers: any wrong page, slot, length or neighbour changes ids and no rounding hides it.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from dflash.batch import Batch
from dflash.target import TargetFacts, TargetOutput

Words = NDArray[np.uint64]

# Odd 64-bit constants of our own, one a use, so that no two fields can stand in for each other.
_POSITION = np.uint64(0x9E2B_71C5_4D83_F6A7)
_TOKEN = np.uint64(0xC4D1_0F95_B36E_2A1B)
_STATE = np.uint64(0xA7F3_5862_E90D_1C4D)
_INDEX = np.uint64(0xE19D_C740_263B_8F55)
_MIX_1 = np.uint64(0xD6E8_FEB8_6659_FD93)
_MIX_2 = np.uint64(0xB5AD_4ECE_DA1C_E2A9)


class UnwrittenSlotError(Exception):
    """A slot was read that nobody has written since its page was last free."""


class HashLM:
    """Implements `dflash.target.Target` with pages of (position, id, state of the prefix).

    A slot's state is computed from the state in the slot before it, as a key in a deep model
    depends on all earlier keys: a run computed on a wrong page leaves wrong content behind.
    """

    def __init__(
        self,
        *,
        num_pages: int = 64,
        page_size: int = 16,
        vocab_size: int = 251,
        max_model_len: int = 512,
        eos_token_ids: tuple[int, ...] = (0,),
    ) -> None:
        self._facts = TargetFacts(
            vocab_size=vocab_size,
            max_model_len=max_model_len,
            eos_token_ids=eos_token_ids,
            page_size=page_size,
            num_pages=num_pages,
            num_layers=1,
        )
        shape = num_pages * page_size
        self._positions = np.zeros(shape, np.uint64)
        self._tokens = np.zeros(shape, np.uint64)
        self._states = np.zeros(shape, np.uint64)
        self._is_written = np.zeros(shape, np.bool_)
        self._vocab = np.arange(vocab_size, dtype=np.uint64) * _TOKEN

    @property
    def facts(self) -> TargetFacts:
        """The facts the engine asks for."""
        return self._facts

    def forward(self, batch: Batch, taps: tuple[int, ...] = ()) -> TargetOutput:
        """Write the runs' slots, then answer from what the pages hold."""
        if any(taps):
            raise ValueError(f"HashLM has one layer to tap, number 0, got taps {taps}")
        tokens = batch.token_ids.numpy().astype(np.uint64)
        positions = batch.positions.numpy()
        offsets = batch.run_offsets.tolist()
        wanted = batch.logit_rows.numpy()
        rows, tags = [], []
        for index, (first, last) in enumerate(pairwise(offsets)):
            slots = self._slots(batch.page_tables[index].numpy(), int(positions[last - 1]) + 1)
            self._write(slots, tokens[first:last], positions[first:last])
            tags.append(self.tags(slots[len(slots) - (last - first) :]))
            own = wanted[(wanted >= first) & (wanted < last)]
            rows.extend(self._read(slots[: positions[row] + 1]) for row in own)
        hidden = {tap: torch.from_numpy(np.concatenate(tags)) for tap in taps}
        return TargetOutput(logits=self._logits(rows), hidden=hidden)

    def tags(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return what a tap hands out for slots: their contents, exact in float32.

        Shapes:
            slots: ``[n]`` int64, page times page size plus offset.
            return: ``[n, 5]`` position, id, and the state in pieces of 24, 24 and 16 bits.
        """
        states = self._states[slots]
        low = np.uint64(0xFFFFFF)
        pieces = (states & low, states >> np.uint64(24) & low, states >> np.uint64(48))
        fields = (self._positions[slots], self._tokens[slots], *pieces)
        return np.stack(fields, axis=-1).astype(np.float32)

    def poison(self, pages: Iterable[int]) -> None:
        """Make these pages unreadable until they are written again."""
        self._is_written.reshape(-1, self._facts.page_size)[list(pages)] = False

    def page_contents(self) -> Words:
        """Return a copy of all pages, to see which of them a step has touched.

        Shapes:
            return: ``[num_pages, page_size, 3]`` position, id and state.
        """
        fields = np.stack([self._positions, self._tokens, self._states], axis=-1)
        return fields.reshape(self._facts.num_pages, self._facts.page_size, 3)

    def next_logits(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Return ``[1, vocab]`` logits after these ids, computed without any page."""
        tokens = np.asarray(token_ids, np.uint64)
        positions = np.arange(len(token_ids), dtype=np.uint64)
        states = np.cumsum(_mix(positions * _POSITION + tokens * _TOKEN), dtype=np.uint64)
        return self._logits([_digest(positions, tokens, states)])

    def _slots(self, page_table: NDArray[np.int32], num_tokens: int) -> NDArray[np.int64]:
        index = np.arange(num_tokens)
        pages = page_table[index // self._facts.page_size].astype(np.int64)
        if pages.min() < 0:
            raise UnwrittenSlotError(f"{num_tokens} tokens need more pages than {page_table}")
        return pages * self._facts.page_size + index % self._facts.page_size

    def _write(self, slots: NDArray[np.int64], tokens: Words, positions: NDArray[np.int32]) -> None:
        start = len(slots) - len(tokens)
        before = np.uint64(0)
        if start:
            self._refuse_unwritten(slots[:start])
            before = self._states[slots[start - 1]]
        places = positions.astype(np.uint64)
        own = slots[start:]
        self._positions[own] = places
        self._tokens[own] = tokens
        steps = _mix(places * _POSITION + tokens * _TOKEN)
        self._states[own] = np.cumsum(steps, dtype=np.uint64) + before
        self._is_written[own] = True

    def _read(self, slots: NDArray[np.int64]) -> np.uint64:
        self._refuse_unwritten(slots)
        return _digest(self._positions[slots], self._tokens[slots], self._states[slots])

    def _refuse_unwritten(self, slots: NDArray[np.int64]) -> None:
        if not self._is_written[slots].all():
            slot = int(slots[~self._is_written[slots]][0])
            page, offset = divmod(slot, self._facts.page_size)
            raise UnwrittenSlotError(f"slot {offset} of page {page} was read before it was written")

    def _logits(self, digests: list[np.uint64]) -> torch.Tensor:
        """Spread each digest over the vocabulary: 24-bit numbers in [-4, 4), exact in float32."""
        words = _mix(np.array(digests, np.uint64)[:, None] + self._vocab)
        return torch.from_numpy((words >> np.uint64(40)).astype(np.float32) / 2**21 - 4.0)


def _digest(positions: Words, tokens: Words, states: Words) -> np.uint64:
    """Hash visible slots in their order."""
    index = np.arange(len(tokens), dtype=np.uint64)
    words = positions * _POSITION + tokens * _TOKEN + states * _STATE + index * _INDEX
    return _mix(words).sum(dtype=np.uint64)


def _mix(words: Words) -> Words:
    """Scatter the bits of each word: two rounds of shift-xor and multiply."""
    words = (words ^ (words >> np.uint64(32))) * _MIX_1
    words = (words ^ (words >> np.uint64(29))) * _MIX_2
    return words ^ (words >> np.uint64(32))

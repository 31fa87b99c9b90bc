"""A target that reads and writes wrong slots at times, around one that never does."""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from benchmarks.rigs.fault import Dice, Fault
from benchmarks.rigs.slot_memory import SlotMemory, Slots
from dflash.batch import Batch
from dflash.target import Target, TargetFacts, TargetOutput


class FaultyTarget:
    """Implements `dflash.target.Target` with one fault."""

    def __init__(self, target: Target, memory: SlotMemory, fault: Fault, dice: Dice) -> None:
        """Spoil a target.

        Args:
            target: The sound one.
            memory: Its pages.
            fault: One of those that lie in pages or positions.
            dice: When it strikes.
        """
        self._target = target
        self._memory = memory
        self._fault = fault
        self._dice = dice
        # Slots that the step before wrote, with the first page of the sequence that did.
        self._written: dict[int, int] = {}

    @property
    def facts(self) -> TargetFacts:
        """The facts of the sound target."""
        return self._target.facts

    def forward(self, batch: Batch, taps: tuple[int, ...] = ()) -> TargetOutput:
        """Compute the batch as the fault has it."""
        struck = [run for run in range(batch.num_runs) if self._dice.strikes()]
        if self._fault is Fault.KV_SWAPPED:
            return self._target.forward(self._swapped(batch, struck), taps)
        if self._fault is Fault.POSITION_OFF_BY_ONE:
            return self._target.forward(self._early(batch, struck), taps)
        output, spoilt = self._forward_over_kept_slots(batch, taps, struck)
        self._dice.num_struck += sum(slots.size > 0 for slots in spoilt)
        return output

    def _forward_over_kept_slots(
        self, batch: Batch, taps: tuple[int, ...], struck: list[int]
    ) -> tuple[TargetOutput, list[Slots]]:
        """Compute the batch, then spoil what it has just written; return which slots."""
        spoilt = [self._slots_to_spoil(batch, run) for run in struck]
        before = [self._memory.read(slots) for slots in spoilt]
        output = self._target.forward(batch, taps)
        for slots, content in zip(spoilt, before, strict=True):
            if self._fault is Fault.KEY_DRIFT:
                self._memory.drift(slots)
            else:
                self._memory.write(slots, content)
        self._written = {
            int(slot): int(batch.page_tables[run, 0])
            for run in range(batch.num_runs)
            for slot in self._slots(batch, run)
        }
        return output, spoilt

    def _slots_to_spoil(self, batch: Batch, run: int) -> Slots:
        slots = self._slots(batch, run)
        if self._fault is Fault.PAGE_STALE:
            page_size = self.facts.page_size
            return slots[slots // page_size == slots[-1] // page_size]
        if self._fault is Fault.REJECTED_VISIBLE:
            # Only what a draft left there is written twice by one sequence.
            owner = int(batch.page_tables[run, 0])
            return slots[[self._written.get(int(slot)) == owner for slot in slots]]
        return slots

    def _slots(self, batch: Batch, run: int) -> Slots:
        """Return the slots that a run writes."""
        first, end = batch.run_offsets[run : run + 2].tolist()
        positions = batch.positions[first:end].numpy().astype(np.int64)
        pages = batch.page_tables[run].numpy().astype(np.int64)
        page_size = self.facts.page_size
        return pages[positions // page_size] * page_size + positions % page_size

    def _swapped(self, batch: Batch, struck: list[int]) -> Batch:
        """Let each struck run trade pages with another that has as many as both need."""
        tables = batch.page_tables.clone()
        last = batch.positions[batch.run_offsets[1:].long() - 1]
        needed = (last // self.facts.page_size + 1).tolist()
        held = (batch.page_tables >= 0).sum(dim=1).tolist()
        free = set(range(batch.num_runs))
        for run in struck:
            partners = [
                other
                for other in free - {run}
                if run in free and needed[run] <= held[other] and needed[other] <= held[run]
            ]
            if partners:
                other = self._dice.random.choice(partners)
                tables[[run, other]] = tables[[other, run]]
                free -= {run, other}
                self._dice.num_struck += 1
        return replace(batch, page_tables=tables)

    def _early(self, batch: Batch, struck: list[int]) -> Batch:
        """Move each struck run one position down; one that begins a sequence cannot."""
        positions = batch.positions.clone()
        for run, (first, end) in enumerate(pairwise(batch.run_offsets.tolist())):
            if run in struck and positions[first] > 0:
                positions[first:end] -= 1
                self._dice.num_struck += 1
        return replace(batch, positions=positions)

"""The drafter in a step: asked for drafts, fed with what was kept, its faults outlived."""

import heapq
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index

import torch
from torch import Tensor

from dflash.batch import Run
from dflash.drafters.base import ContextRows, Drafter, DraftRow
from dflash.drafters.held import HeldDrafter
from dflash.errors import AccountingError, EngineError
from dflash.following import Following
from dflash.plan import Release
from dflash.rung import Rung
from dflash.schedule import Effort, Schedule, Turn, Verdict
from dflash.stats import WhyPlain

_logger = logging.getLogger(__name__)

# Between two attempts to load weights that were given back and cannot be loaded.
_NUM_STEPS_TO_RETRY = 1000

# The draft tokens of a row, or why it has none.
_Answer = tuple[int, ...] | Exception


class DrafterError(EngineError):
    """A drafter proposed what cannot be draft tokens."""


@dataclass(frozen=True, slots=True)
class Drafted:
    """A schedule with its draft tokens.

    Attributes:
        schedule: Runs that verify hold their draft tokens now; rows whose drafter or answer was at
            fault are plain.
        efforts: By name, of the drafters that were asked.
    """

    schedule: Schedule
    efforts: Mapping[str, Effort]

    def with_followed(self, efforts: Mapping[str, Effort]) -> dict[str, Effort]:
        """Return the efforts of the whole step: these, and those of extending contexts."""
        none = Effort()
        return {
            name: self.efforts.get(name, none).plus(efforts.get(name, none))
            for name in {**self.efforts, **efforts}
        }


class Drafting:
    """A drafter as the engine sees it: whatever it does, no request fails.

    Attributes:
        facts: The drafter's.
    """

    def __init__(self, drafter: Drafter, rung: Rung, vocab_size: int) -> None:
        self.facts = drafter.facts
        self._drafter = drafter
        self._rung = rung
        self._vocab_size = vocab_size
        self._num_passes = 0
        self._logged: set[str] = set()
        self._released: Release | None = None
        self._num_steps_absent: int | None = None

    @property
    def is_absent(self) -> bool:
        """Whether its weights were to come back and could not be loaded."""
        return self._num_steps_absent is not None

    def hold(self, release: Release | None) -> bool:
        """Give memory back, or take it again; return whether its context is lost by it."""
        if release is self._released:
            self._retry()
            return False
        had_context, self._released = self._released is None, release
        if release is Release.WEIGHTS and isinstance(self._drafter, HeldDrafter):
            self._drafter.release_weights()
            self._num_steps_absent = None
        else:
            self._restore()
            if release is not None:
                self._release_context()
        return had_context and release is not None

    def _release_context(self) -> None:
        """Give its context's memory back; where that fails, what is in it is forgotten anyway."""
        try:
            self._drafter.release_context()
        except Exception as error:  # noqa: BLE001 - logged by kind
            self._fault("give its context back", error)

    def _restore(self) -> None:
        """Load the weights where they are gone; where that fails, nobody drafts with them."""
        self._num_steps_absent = None
        if isinstance(self._drafter, HeldDrafter):
            try:
                self._drafter.restore()
            except Exception as error:  # noqa: BLE001 - logged by kind
                self._num_steps_absent = 0
                self._fault("come back", error)

    def _retry(self) -> None:
        """Try again to load what could not be loaded, but not in every step: it takes long."""
        if self._num_steps_absent is not None:
            self._num_steps_absent += 1
            if self._num_steps_absent >= _NUM_STEPS_TO_RETRY:
                self._restore()

    def propose(self, schedule: Schedule, num_graded: int) -> tuple[Schedule, Effort]:
        """Return the schedule with this drafter's draft tokens, none where the answer is no draft.

        Args:
            schedule: Turns that may draft say how many, and with whom.
            num_graded: So many of them, the longest ungraded first, are drafted to their ends.
        """
        started_s = time.perf_counter()
        asking = [turn for turn in schedule.turns if self._is_asked(turn)]
        self._num_passes += 1
        if self.facts.drafts_whole_block:
            for turn in heapq.nsmallest(num_graded, asking, key=self._last_graded):
                self._following(turn).last_graded = self._num_passes
        answers = self._answers(asking)
        faults = [self._fault("propose", each) for each in answers if isinstance(each, Exception)]
        answer = iter(answers)
        turns = tuple(
            _with_drafts(turn, next(answer)) if self._is_asked(turn) else turn
            for turn in schedule.turns
        )
        effort = Effort(time.perf_counter() - started_s, next(iter(faults), None))
        return replace(schedule, turns=turns), effort

    def feed(
        self, verdicts: Iterable[Verdict], hidden: Mapping[int, Tensor], *, begins: bool
    ) -> Effort:
        """Extend the context by what each turn kept, and enter it in the book.

        A run may begin before the end of its sequence's context, where another drafter is caught
        up. One that begins after it is left out: that sequence is caught up later.

        Args:
            verdicts: What came of each turn.
            hidden: What the target computed.
            begins: Whether sequences without any context are begun.

        Shapes:
            hidden: For each of the drafter's taps ``[num_tokens, hidden]``, the step's rows.
        """
        started_s = time.perf_counter()
        commits, sequences, first = [], [], 0
        for verdict in verdicts:
            new, run = self._new_rows(verdict, begins), verdict.turn.run
            if new:
                rows = range(first + new.start, first + new.stop)
                commits.append(ContextRows(run.start + new.start, run.page_table, rows))
                sequences.append(verdict.turn.sequence)
            first += len(run.token_ids)
        fault = self._observe(hidden, commits) if commits else None
        if fault is not None:
            for sequence in sequences:
                following = sequence.followed_by[self.facts.name]
                following.postpone_catch_up(sequence.num_tokens)
        return Effort(time.perf_counter() - started_s, fault)

    def _is_asked(self, turn: Turn) -> bool:
        return turn.num_drafts > 0 and turn.drafter == self.facts.name

    def _following(self, turn: Turn) -> Following:
        return turn.sequence.followed_by[self.facts.name]

    def _last_graded(self, turn: Turn) -> int:
        return self._following(turn).last_graded

    def _answers(self, asking: Sequence[Turn]) -> list[_Answer]:
        """Return what came for each turn; what is wrong with one row concerns that row alone."""
        rows = [self._row(turn) for turn in asking]
        sound = [row for row in rows if isinstance(row, DraftRow)]
        proposals = iter(self._proposals(sound))
        return [
            _answer(row, next(proposals), self._vocab_size) if isinstance(row, DraftRow) else row
            for row in rows
        ]

    def _proposals(self, rows: Sequence[DraftRow]) -> Sequence[Sequence[int] | Exception]:
        """Return the drafter's answer to each row, unread; where it raises, that for each."""
        if not rows:
            return ()
        try:
            proposals = self._drafter.propose(rows)
            if len(proposals) == len(rows):
                return proposals
        except Exception as error:  # noqa: BLE001 - logged by kind, and part of the step's counts
            return [error] * len(rows)
        return [DrafterError(f"{len(proposals)} proposals came for {len(rows)} rows")] * len(rows)

    def _row(self, turn: Turn) -> DraftRow | AccountingError:
        request, run = turn.sequence.request, turn.run
        following, position = self._following(turn), run.start + len(run.token_ids) - 1
        if following.num_context != position:
            return AccountingError(
                f"request {request.request_id} drafts at {position} with a context of "
                f"{following.num_context} tokens"
            )
        is_whole = following.last_graded == self._num_passes
        return DraftRow(
            anchor=run.token_ids[-1],
            position=position,
            page_table=run.page_table,
            num_drafts=self.facts.max_draft_length if is_whole else turn.num_drafts,
            temperature=request.sampling.temperature,
            seed=request.seed,
            choice=request.choice,
        )

    def _new_rows(self, verdict: Verdict, begins: bool) -> range:
        """Return which rows of a turn, counted from its first, go into the context."""
        sequence, start = verdict.turn.sequence, verdict.turn.run.start
        num_context = self._following(verdict.turn).num_context
        is_out = start > num_context or (num_context == 0 and not begins)
        if is_out or not self._rung.is_followed(sequence):
            return range(0)
        return range(num_context - start, min(verdict.num_kept, self.facts.max_context - start))

    def _observe(self, hidden: Mapping[int, Tensor], commits: list[ContextRows]) -> str | None:
        context = self._rung.context
        try:
            features = torch.cat([hidden[tap] for tap in self.facts.taps], dim=1)
            self._drafter.observe(features, commits)
            for commit in commits:
                context.written(commit.page_table, commit.start, commit.start + len(commit.rows))
        except Exception as error:  # noqa: BLE001 - logged by kind, and part of the step's counts
            for commit in commits:
                context.skipped(commit.page_table, commit.start, commit.start + len(commit.rows))
            return self._fault("observe", error)
        return None

    def _fault(self, verb: str, error: Exception) -> str:
        """Return a fault in words; log it the first time it comes."""
        kind = f"{verb}: {type(error).__name__}"
        if kind not in self._logged:
            self._logged.add(kind)
            is_ours = isinstance(error, AccountingError)
            _logger.error(
                "%s; its requests go on in plain decoding, and later faults of this kind are only "
                "counted",
                f"the books of drafter {self.facts.name}'s context disagree"
                if is_ours
                else f"drafter {self.facts.name} failed to {verb}",
                exc_info=error,
            )
        return f"{kind}: {error}"


def _answer(row: DraftRow, proposal: Sequence[int] | Exception, vocab_size: int) -> _Answer:
    if isinstance(proposal, Exception):
        return proposal
    try:
        return _token_ids(row, proposal, vocab_size)
    except Exception as error:  # noqa: BLE001 - logged by kind, and part of the step's counts
        return error


def _token_ids(row: DraftRow, proposal: Sequence[int], vocab_size: int) -> tuple[int, ...]:
    """Return a row's ids as plain integers, whatever kind of integers came."""
    if len(proposal) > row.num_drafts:
        raise DrafterError(f"{len(proposal)} draft tokens came, {row.num_drafts} were asked for")
    token_ids = tuple(index(token_id) for token_id in proposal)
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise DrafterError(
                f"draft token {token_id} came; the target's ids are 0 to {vocab_size - 1}"
            )
    return token_ids


def _with_drafts(turn: Turn, answer: _Answer) -> Turn:
    """Return the turn with its draft tokens in the run and the others behind."""
    if isinstance(answer, Exception):
        return replace(turn, num_drafts=0, why_plain=WhyPlain.DRAFTER_FAILED)
    if not answer:
        return replace(turn, num_drafts=0, why_plain=WhyPlain.NOTHING_PROPOSED)
    drafts, tail = answer[: turn.num_drafts], answer[turn.num_drafts :]
    asked = turn.run
    run = Run((*asked.token_ids, *drafts), asked.start, asked.page_table, 1 + len(drafts))
    return replace(turn, run=run, num_drafts=len(drafts), tail=tail)

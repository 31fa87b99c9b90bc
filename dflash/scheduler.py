"""Who computes how many tokens this step, within the budgets of tokens and pages."""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from dflash.budget import Share, share_out
from dflash.config import EngineLimits
from dflash.errors import AccountingError
from dflash.grants import Grants
from dflash.kv_cache import KVCache, PageTable
from dflash.plan import Decoding, DraftPlan
from dflash.request import TokenOutput
from dflash.schedule import Schedule, Turn, Verdict
from dflash.sequence import Sequence
from dflash.stats import WhyPlain
from dflash.turns import turns_of


class Scheduler:
    """Running and waiting sequences, both in order of arrival.

    There is no prefill phase and no decode phase: a sequence has tokens to compute, many or one.
    Every running sequence holds pages for all its tokens. Sequences are admitted oldest first and
    preempted youngest first, so each running one is older than each waiting one and the oldest is
    never stopped: that is why preemption cannot go round in circles.

    Attributes:
        limits: Bounds of a step, replaced between two.
        grants: What the drafters allow.
    """

    def __init__(
        self, kv_cache: KVCache, limits: EngineLimits, grants: Grants | None = None
    ) -> None:
        self.limits = limits
        self.grants = grants or Grants(kv_cache)
        self._kv_cache = kv_cache
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._num_schedules = 0

    @property
    def num_running(self) -> int:
        """Sequences that hold pages."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Sequences that hold none, preempted ones included."""
        return len(self._waiting)

    @property
    def num_waiting_tokens(self) -> int:
        """Tokens that waiting sequences hold."""
        return sum(sequence.num_tokens for sequence in self._waiting)

    @property
    def decoding(self) -> tuple[Decoding, ...]:
        """The requests that have one token to compute, oldest first."""
        return tuple(s.decoding for s in self._running if s.is_decoding)

    @property
    def num_behind(self) -> dict[str, int]:
        """Computed tokens that each drafter's context lacks, of requests that it can follow."""
        return {
            name: sum(
                sequence.num_computed - sequence.followed_by[name].num_context
                for sequence in self._running
                if rung.is_followed(sequence)
            )
            for name, rung in self.grants.rungs.items()
        }

    def add(self, sequence: Sequence) -> None:
        """Let a new sequence wait behind all others."""
        self._waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it is, and let go of its pages."""
        if sequence.table is None:
            self._waiting.remove(sequence)
        else:
            self._running.remove(sequence)
            self._release(sequence)

    def forget(self, drafter: str) -> None:
        """Enter that a drafter's context is lost."""
        self.grants.forget(drafter, (*self._running, *self._waiting))

    def schedule(self, plan: DraftPlan) -> Schedule:
        """Return what to compute now; no turns only where there is no sequence at all."""
        num_preempted = self._make_room()
        num_cached = self._admit()
        num_cached += sum(self._adopt(sequence) for sequence in self._running)
        shares: list[Share] = []
        whys: list[WhyPlain | None] = []
        for sequence in self._running:
            share, why = self._wish(sequence, plan)
            shares.append(share)
            whys.append(why)
        share_out(self.limits.max_num_batched_tokens, shares)
        self._num_schedules += 1
        turns: list[Turn] = []
        for share, why in zip(shares, whys, strict=True):
            if share.num_tokens:
                share.sequence.last_turn = self._num_schedules
                turns.extend(turns_of(share, _table_of(share.sequence), why, self.grants))
        return Schedule(tuple(turns), num_preempted, num_cached)

    def commit(self, verdicts: Iterable[Verdict]) -> tuple[TokenOutput, ...]:
        """Enter what a step brought, each sequence in one piece; return the messages."""
        messages = (self._commit_one(verdict) for verdict in verdicts)
        return tuple(message for message in messages if message is not None)

    def check(self) -> None:
        """Prove the books of pages and of sequences.

        Raises:
            AccountingError: They do not add up.
        """
        self._kv_cache.check()
        for sequence in self._running:
            self._check_pages(sequence)
        for sequence in self._waiting:
            if sequence.table is not None or sequence.num_computed:
                raise AccountingError(
                    f"request {sequence.request.request_id} waits and still holds pages"
                )
        if not self._running and self._kv_cache.num_owned:
            raise AccountingError(f"{self._kv_cache.num_owned} pages are owned and nothing runs")

    def _check_pages(self, sequence: Sequence) -> None:
        table, name = _table_of(sequence), sequence.request.request_id
        count = len(table.pages)
        if count < self._kv_cache.num_pages_for(sequence.num_computed):
            raise AccountingError(
                f"request {name} runs with {sequence.num_computed} computed tokens and fewer pages"
            )
        if count > self._kv_cache.num_pages_for(sequence.num_tokens):
            raise AccountingError(
                f"request {name} keeps {count} pages for {sequence.num_tokens} tokens"
            )
        for drafter, rung in self.grants.rungs.items():
            num_context = sequence.followed_by[drafter].num_context
            if num_context > rung.num_context(sequence, table):
                raise AccountingError(
                    f"request {name} claims a context of {num_context} tokens with drafter "
                    f"{drafter} that its pages do not hold"
                )

    def _make_room(self) -> int:
        """Give every running sequence pages for its tokens, at the cost of the youngest."""
        num_preempted = 0
        index = 0
        while index < len(self._running):
            sequence = self._running[index]
            if self.grants.extend(_table_of(sequence), sequence.num_tokens):
                index += 1
            else:
                self._preempt_youngest()
                num_preempted += 1
        return num_preempted

    def _preempt_youngest(self) -> None:
        """Let the youngest wait again, first of all; it keeps its ids and computes them anew."""
        sequence = self._running.pop()
        self._release(sequence)
        sequence.was_preempted = True
        self._waiting.appendleft(sequence)

    def _release(self, sequence: Sequence) -> None:
        self._kv_cache.close(_table_of(sequence))
        sequence.table = None
        sequence.num_computed = 0
        for following in sequence.followed_by.values():
            following.num_context = 0

    def _admit(self) -> int:
        """Let waiting sequences run while slots and pages allow; return their cached tokens."""
        num_cached = 0
        while self._waiting and len(self._running) < self.limits.max_num_seqs:
            sequence = self._waiting[0]
            # Leave each running sequence a page to grow into, or the newcomer would be preempted
            # before its prefill has paid off.
            table = self._kv_cache.open(sequence.token_ids, num_spare=len(self._running))
            if table is None:
                break
            self._waiting.popleft()
            self._running.append(sequence)
            sequence.start(table)
            self.grants.lent(table.pages[len(table.path) :])
            num_cached += self._count_cached(sequence, len(table.path) * self._kv_cache.page_size)
        return num_cached

    def _adopt(self, sequence: Sequence) -> int:
        if sequence.num_pending == 1:
            return 0
        table = _table_of(sequence)
        num_computed = self._kv_cache.adopt(table, sequence.token_ids, sequence.num_computed)
        return self._count_cached(sequence, num_computed)

    def _count_cached(self, sequence: Sequence, num_computed: int) -> int:
        num_cached = num_computed - sequence.num_computed
        sequence.num_computed = num_computed
        if not sequence.was_preempted:
            sequence.num_cached_tokens += num_cached
        return num_cached

    def _wish(self, sequence: Sequence, plan: DraftPlan) -> tuple[Share, WhyPlain | None]:
        """Return what a sequence could use of a step, and why it cannot draft where it cannot."""
        num_behind = self.grants.num_behind(sequence, _table_of(sequence), plan)
        share = Share(sequence, sequence.num_pending + num_behind)
        if not sequence.is_decoding:
            return share, None
        wanted = self.grants.wanted(sequence, plan)
        if isinstance(wanted, WhyPlain):
            return share, wanted
        share.drafter, share.num_wanted = wanted.drafter, wanted.draft_length
        return share, None

    def _commit_one(self, verdict: Verdict) -> TokenOutput | None:
        turn, sequence = verdict.turn, verdict.turn.sequence
        table = sequence.table
        if table is None:  # It ended by its other turn of this step.
            return None
        _check_start(turn)
        sequence.num_computed = max(sequence.num_computed, turn.run.start + verdict.num_kept)
        message = _message(verdict)
        self._kv_cache.publish(table, sequence.token_ids, sequence.num_computed)
        if turn.is_decoding:
            # One that catches up beside it has no pages for drafts to give back.
            self._kv_cache.truncate(table, sequence.num_tokens)
        for rung in self.grants.rungs.values():
            rung.committed(turn, table)
        if message is not None and message.finish_reason is not None:
            self.remove(sequence)
        return message


def _check_start(turn: Turn) -> None:
    sequence, run = turn.sequence, turn.run
    if min(sequence.num_computed - run.start, len(run.token_ids)) != turn.num_catch_up:
        raise AccountingError(
            f"request {sequence.request.request_id} has {sequence.num_computed} computed "
            f"tokens and a step that began at {run.start}, {turn.num_catch_up} of it to catch up"
        )


def _message(verdict: Verdict) -> TokenOutput | None:
    """Let the sequence take over what was chosen; return its message where it has one."""
    turn, decoded = verdict.turn, None
    if turn.num_drafts:
        decoded = turn.sequence.count_verified(turn.drafter, turn.num_drafts, verdict.num_accepted)
    elif turn.why_plain is not None:
        decoded = turn.sequence.count_plain(turn.drafter, turn.why_plain)
    if not verdict.chosen and verdict.error is None:
        return None
    message = turn.sequence.emit(verdict.chosen, verdict.error, decoded)
    # Few requests end by a fault, so few messages are made twice.
    return replace(message, error_field=verdict.error_field) if verdict.error_field else message


def _table_of(sequence: Sequence) -> PageTable:
    if sequence.table is None:
        raise AccountingError(f"request {sequence.request.request_id} runs without pages")
    return sequence.table

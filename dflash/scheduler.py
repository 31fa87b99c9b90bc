"""Who computes how many tokens this step, within the budgets of tokens and pages."""

from collections import Counter, deque
from collections.abc import Iterable

from dflash.batch import Run
from dflash.config import EngineLimits
from dflash.errors import AccountingError
from dflash.kv_cache import KVCache, PageTable
from dflash.request import FinishReason, TokenOutput
from dflash.schedule import Schedule, Turn, Verdict
from dflash.sequence import Sequence


class Scheduler:
    """Running and waiting sequences, both in order of arrival.

    There is no prefill phase and no decode phase: a sequence has tokens to compute, many or one.
    Every running sequence holds pages for all its tokens. Sequences are admitted oldest first and
    preempted youngest first, so each running one is older than each waiting one and the oldest is
    never stopped: that is why preemption cannot go round in circles.
    """

    def __init__(self, kv_cache: KVCache, limits: EngineLimits) -> None:
        self.limits = limits
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

    def schedule(self) -> Schedule:
        """Return what to compute now; no turns only where there is no sequence at all."""
        num_preempted = self._make_room()
        num_cached = self._admit()
        num_cached += sum(self._adopt(sequence) for sequence in self._running)
        shares = self._share_budget()
        self._num_schedules += 1
        turns = []
        for sequence in self._running:
            if shares[sequence]:
                sequence.last_turn = self._num_schedules
                turns.append(Turn(sequence, _run_of(sequence, shares[sequence])))
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
            table = sequence.table
            if table is None or len(table.pages) * self._kv_cache.page_size < sequence.num_computed:
                raise AccountingError(
                    f"request {sequence.request.request_id} runs with {sequence.num_computed} "
                    "computed tokens and fewer pages"
                )
        for sequence in self._waiting:
            if sequence.table is not None or sequence.num_computed:
                raise AccountingError(
                    f"request {sequence.request.request_id} waits and still holds pages"
                )
        if not self._running and self._kv_cache.num_owned:
            raise AccountingError(f"{self._kv_cache.num_owned} pages are owned and nothing runs")

    def _make_room(self) -> int:
        """Give every running sequence pages for its tokens, at the cost of the youngest."""
        num_preempted = 0
        index = 0
        while index < len(self._running):
            sequence = self._running[index]
            if self._kv_cache.extend(_table_of(sequence), sequence.num_tokens):
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
            sequence.table = table
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

    def _share_budget(self) -> Counter[Sequence]:
        """Return how many tokens each running sequence computes in this step.

        Sequences that decode come first, the longest unserved leading where the budget is under
        their number. Half of the rest goes to the oldest prompts, so that a long one always moves
        on; the other half to those nearest to their first token, so that a short one does not
        wait for a long one.
        """
        budget = self.limits.max_num_batched_tokens
        decoding = sorted((s for s in self._running if s.num_pending == 1), key=_last_turn)
        shares = Counter(dict.fromkeys(decoding[:budget], 1))
        budget -= len(shares)
        prompts = [s for s in self._running if s.num_pending > 1]
        _deal(budget - budget // 2, prompts, shares)
        prompts.sort(key=lambda s: s.num_pending - shares[s])
        _deal(budget // 2, prompts, shares)
        return shares

    def _commit_one(self, verdict: Verdict) -> TokenOutput | None:
        sequence, run = verdict.turn.sequence, verdict.turn.run
        if sequence.num_computed != run.start:
            raise AccountingError(
                f"request {sequence.request.request_id} has {sequence.num_computed} computed "
                f"tokens and a step that began at {run.start}"
            )
        if verdict.error is not None:
            self.remove(sequence)
            return sequence.last_words(FinishReason.ERROR, verdict.error)
        sequence.num_computed += len(run.token_ids)
        message = sequence.emit(verdict.chosen) if verdict.chosen else None
        self._kv_cache.publish(_table_of(sequence), sequence.token_ids, sequence.num_computed)
        if message is not None and message.finish_reason is not None:
            self.remove(sequence)
        return message


def _deal(num_tokens: int, prompts: Iterable[Sequence], shares: Counter[Sequence]) -> None:
    """Give these tokens out, each prompt in turn taking all that it still needs."""
    for sequence in prompts:
        more = min(num_tokens, sequence.num_pending - shares[sequence])
        shares[sequence] += more
        num_tokens -= more


def _run_of(sequence: Sequence, num_tokens: int) -> Run:
    start = sequence.num_computed
    return Run(
        token_ids=tuple(sequence.token_ids[start : start + num_tokens]),
        start=start,
        page_table=tuple(_table_of(sequence).pages),
        num_logits=1 if num_tokens == sequence.num_pending else 0,
    )


def _table_of(sequence: Sequence) -> PageTable:
    if sequence.table is None:
        raise AccountingError(f"request {sequence.request.request_id} runs without pages")
    return sequence.table


def _last_turn(sequence: Sequence) -> int:
    return sequence.last_turn

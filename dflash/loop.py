"""The thread that owns the device: empty the mailbox, step, send what came."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from dflash.admission import check_queue, check_request
from dflash.config import EngineLimits
from dflash.engine import Engine
from dflash.errors import OverloadedError, RequestError
from dflash.grammar.matcher import Matcher
from dflash.grammar.text import Grammar
from dflash.mailbox import Abort, LookAround, Mailbox, Message, Reconfigure, Replan, Stop, Submit
from dflash.plan import Planner
from dflash.request import FinishReason, GenerateRequest, TokenOutput
from dflash.stats import LoopSnapshot

_logger = logging.getLogger(__name__)
_MOST_FAULTS_IN_A_ROW = 2
_LEAST_RETRY_AFTER_S = 1.0
_MOST_RETRY_AFTER_S = 30.0


@dataclass(frozen=True, slots=True)
class LoopHealth:
    """Whether the loop does its work.

    Attributes:
        is_healthy: False where only a restart helps.
        sentence: Why, for people.
    """

    is_healthy: bool
    sentence: str


class EngineLoop:
    """An engine on its own thread. Every method may be called from any thread.

    No method waits for a step, `drain` and `stop` excepted: the lock guards only what other
    threads see of the engine, and is never held while the engine computes or sends.
    """

    def __init__(
        self,
        engine: Engine,
        on_outputs: Callable[[tuple[TokenOutput, ...]], None],
        *,
        stall_limit_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the thread.

        Args:
            engine: Belongs to the loop from now on.
            on_outputs: Called on the loop's thread, once a step, with all messages of that step.
            stall_limit_s: A live request and no step for longer than this is a fault.
            clock: Seconds that never go back.
        """
        self._engine = engine
        self._on_outputs = on_outputs
        self._stall_limit_s = stall_limit_s
        self._clock = clock
        self._mailbox = Mailbox()
        self._thread = threading.Thread(target=self._run, name="dflash-engine", daemon=True)
        self._has_logged_callback = False
        self._snapshot = LoopSnapshot.of(engine.counts)
        # What other threads see, under the lock; it wakes whoever waits in `drain`.
        self._changed = threading.Condition()
        self._live: set[str] = set()
        self._mailed: dict[str, int] = {}
        self._closed_because: str | None = None
        self._died_of: str | None = None
        self._last_progress_s = clock()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def matcher(self, grammar: Grammar) -> Matcher | None:
        """Return a matcher to submit a request with; compiles, which can take seconds.

        Raises:
            RequestError: The grammar cannot be compiled for this model.
        """
        return self._engine.matcher(grammar)

    def submit(self, request: GenerateRequest, matcher: Matcher | None = None) -> None:
        """Hand a request over; its messages come through ``on_outputs``.

        Args:
            request: The request.
            matcher: Of its grammar, where it has one.

        Raises:
            RequestError: The target cannot serve it, or its id is in use.
            OverloadedError: Too many wait already, or the loop takes no more requests.
        """
        check_request(request, self._engine.facts)
        with self._changed:
            if self._closed_because is not None:
                raise OverloadedError(f"the engine {self._closed_because}; retry elsewhere")
            if request.request_id in self._live:
                raise RequestError(
                    f"request_id {request.request_id!r} is in use; give each live request its own",
                    "request_id",
                )
            seen = self._snapshot
            counts = replace(
                seen,
                num_waiting=seen.num_waiting + len(self._mailed),
                num_waiting_tokens=seen.num_waiting_tokens + sum(self._mailed.values()),
            )
            check_queue(request, self._engine.limits, counts, _retry_after_s(counts))
            if not self._live:
                self._last_progress_s = self._clock()
            self._live.add(request.request_id)
            self._mailed[request.request_id] = len(request.known_token_ids)
            self._mailbox.put(Submit(request, matcher))

    def abort(self, request_id: str) -> None:
        """End a request before the next step; its last message follows. Unknown ids are ignored."""
        self._mailbox.put(Abort(request_id))

    def reconfigure(self, limits: EngineLimits) -> None:
        """Replace the limits before the next step."""
        self._mailbox.put(Reconfigure(limits))

    def set_planner(self, planner: Planner) -> None:
        """Let another planner decide from the next step on."""
        self._mailbox.put(Replan(planner))

    def look_around(self) -> None:
        """Let the planner look around where nothing runs; a step does so by itself."""
        self._mailbox.put(LookAround())

    def drain(self, timeout_s: float) -> bool:
        """Take no more requests and wait for the live ones; return whether all ended in time."""
        with self._changed:
            self._closed_because = self._closed_because or "is draining"
            return self._changed.wait_for(lambda: not self._live, timeout_s)

    def stop(self) -> None:
        """Abort what is live and end the thread."""
        with self._changed:
            self._closed_because = "has stopped"
            self._mailbox.put(Stop())
        if self._thread.is_alive():
            self._thread.join()

    def health(self) -> LoopHealth:
        """Return whether the loop does its work."""
        seen = self._snapshot
        with self._changed:
            num_live, idle_s = len(self._live), self._clock() - self._last_progress_s
        if self._died_of is not None:
            return LoopHealth(False, f"the engine's thread died of {self._died_of}")
        if not self._thread.is_alive():
            return LoopHealth(False, f"the engine {self._closed_because or 'has not started'}")
        if num_live and idle_s > self._stall_limit_s:
            return LoopHealth(
                False, f"{num_live} requests are live and no step has ended for {idle_s:.0f} s"
            )
        if seen.num_faults_in_a_row > _MOST_FAULTS_IN_A_ROW:
            return LoopHealth(
                False,
                f"the last {seen.num_faults_in_a_row} steps failed, the last one with "
                f"{seen.last_fault}",
            )
        return LoopHealth(True, f"{num_live} requests are live after {seen.num_steps} steps")

    def snapshot(self) -> LoopSnapshot:
        """Return the engine as it was after the last step."""
        return self._snapshot

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:
            _logger.exception("the engine thread died")
            self._bury(f"{type(error).__name__}: {error}")

    def _turn(self) -> bool:
        """Empty the mailbox and step once; return whether to go on."""
        messages = self._mailbox.take_all(wait=not self._engine.has_work)
        outputs = [output for message in messages for output in self._apply(message)]
        snapshot = self._snapshot
        if self._engine.has_work:
            result = self._engine.step()
            outputs.extend(result.outputs)
            snapshot = snapshot.after_step(result.stats, result.fault)
        self._publish(snapshot.between_steps(self._engine.counts), messages, outputs)
        self._send(tuple(outputs))
        # Proving the books takes the longer the more pages there are; looking around touches none.
        is_quiet = all(isinstance(message, LookAround) for message in messages)
        if not self._engine.has_work and not (is_quiet and messages):
            self._engine.check()
        return not any(isinstance(message, Stop) for message in messages)

    def _apply(self, message: Message) -> list[TokenOutput]:
        match message:
            case Submit(request, matcher):
                self._engine.enqueue(request, matcher)
            case Abort(request_id):
                return self._end([request_id])
            case Reconfigure(limits):
                self._engine.set_limits(limits)
            case Replan(planner):
                self._engine.set_planner(planner)
            case LookAround():
                self._engine.look_around()
            case Stop():
                return self._end(sorted(self._live))
        return []

    def _end(self, request_ids: list[str]) -> list[TokenOutput]:
        words = (self._engine.abort(request_id) for request_id in request_ids)
        return [last for last in words if last is not None]

    def _publish(
        self, snapshot: LoopSnapshot, messages: list[Message], outputs: list[TokenOutput]
    ) -> None:
        """Show other threads the state after this step, before they see its messages."""
        with self._changed:
            self._snapshot = snapshot
            for message in messages:
                if isinstance(message, Submit):
                    del self._mailed[message.request.request_id]
            self._live.difference_update(
                output.request_id for output in outputs if output.finish_reason is not None
            )
            self._last_progress_s = self._clock()
            self._changed.notify_all()

    def _send(self, outputs: tuple[TokenOutput, ...]) -> None:
        if not outputs:
            return
        try:
            self._on_outputs(outputs)
        except Exception:
            if not self._has_logged_callback:
                self._has_logged_callback = True
                _logger.exception("on_outputs failed; later failures of it are not logged")

    def _bury(self, cause: str) -> None:
        """Tell every live request that no more will come."""
        with self._changed:
            self._died_of = cause
            self._closed_because = "has died"
            orphans = sorted(self._live)
            self._live.clear()
            self._changed.notify_all()
        error = "the engine died while computing this request; retry it"
        self._send(
            tuple(
                TokenOutput(request_id, (), finish_reason=FinishReason.ERROR, error=error)
                for request_id in orphans
            )
        )


def _retry_after_s(seen: LoopSnapshot) -> float:
    """Return the time in which half of those waiting will have started, at the pace so far."""
    pace_s = seen.busy_time_s / max(seen.num_finished, 1)
    wait_s = pace_s * seen.num_waiting / 2
    return min(max(wait_s, _LEAST_RETRY_AFTER_S), _MOST_RETRY_AFTER_S)

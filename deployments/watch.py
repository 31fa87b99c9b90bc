"""What one ingress knows of its engines: the loaded model, loading progress, and health."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from deployments.client import EngineClient
from deployments.openai import errors
from deployments.openai.errors import ApiError
from deployments.openai.tokenizer import TextTokenizer
from deployments.operators.board import FleetBoard
from deployments.room import Bounds, most_live
from deployments.wire import EngineStatus, FilePart, LoadReport, ModelCard

CHECK_IN_INTERVAL_S = 1.0
_CHECK_IN_TIMEOUT_S = 3.0
# A replica that loads reports twice a second; older than this is history.
_FRESH_REPORT_S = 5.0
# A replica that missed a few check-ins may only be busy; its last status holds for this long.
_GRACE_S = 10.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that can take requests.

    Attributes:
        card: Its facts.
        tokenizer: Its tokenizer and chat template.
        loaded_at_s: When this process came to know it, seconds since the epoch.
    """

    card: ModelCard
    tokenizer: TextTokenizer
    loaded_at_s: int


class EngineWatch:
    """Asks for the model once, then checks in with all replicas every second.

    The first question simply waits: Serve delivers it when the first replica has loaded.

    Attributes:
        model: The loaded model; None before.
        board: What operators see, and what they ordered.
    """

    def __init__(self, client: EngineClient, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare to watch.

        Args:
            client: Whose engines.
            clock: Tells the time, seconds.
        """
        self._client = client
        self._clock = clock
        self._report: tuple[float, LoadReport] | None = None
        self._heard: tuple[tuple[float, EngineStatus], ...] = ()
        self.model: LoadedModel | None = None
        self.board = FleetBoard(clock)

    @property
    def statuses(self) -> tuple[EngineStatus, ...]:
        """The latest status of each replica that answered within the grace."""
        oldest_s = self._clock() - _GRACE_S
        return tuple(status for heard_at_s, status in self._heard if heard_at_s >= oldest_s)

    @property
    def bounds(self) -> Bounds:
        """What this ingress may hold at once."""
        statuses = self.statuses
        tokens = [status.limits.max_waiting_tokens for status in statuses]
        return Bounds(
            places=most_live(status.room for status in statuses),
            waiting_tokens=sum(tokens) or None,
        )

    @property
    def num_live(self) -> int:
        """Requests that wait or run, of this ingress or as the replicas last counted them."""
        counted = sum(status.num_running + status.num_waiting for status in self.statuses)
        return max(counted, self._client.num_live)

    @property
    def is_drained(self) -> bool:
        """Whether an operator takes it out of service and nothing runs any more."""
        return self.board.orders.drain.is_on and not self.num_live

    async def signals(self, replica: str, most: int) -> bytes | None:
        """Return what a replica's newest decisions looked at, compressed; None if it is silent."""
        return await self._client.signals(replica, most)

    def note(self, report: LoadReport) -> None:
        """Take a loading replica's report."""
        self._report = (self._clock(), report)

    def progress(self) -> LoadReport:
        """Return the latest report of a loading replica."""
        if self._report is None:
            return LoadReport(replica="", phase="starting", fraction=0.0, elapsed_s=0.0)
        return self._report[1]

    def why_not_ready(self) -> str | None:
        """Return why no request should be sent here now; None where one can."""
        if self.model is None:
            return self.progress().problem or "loading"
        statuses = self.statuses
        if not statuses:
            return "no engine replica answers"
        if self.is_drained:
            return "drained: new work is refused, and what ran has ended"
        if any(status.is_healthy for status in statuses):
            return None
        return statuses[0].sentence

    def refusal(self) -> ApiError | None:
        """Return the error for requests that would only wait for a model to load."""
        if self.model is not None and (self.statuses or not self._is_loading()):
            return None
        progress = self.progress()
        if progress.problem is not None:
            return errors.load_failed(progress.problem)
        return errors.server_loading(progress.phase, int(progress.fraction * 100))

    async def run(self) -> None:
        """Watch until cancelled."""
        is_answered = True
        while True:
            try:
                async with asyncio.timeout(None if self.model is None else _CHECK_IN_TIMEOUT_S):
                    if self.model is None:
                        self.model = await self._ask_for_model()
                    self._hear(await self._client.check_in(self.board.briefing()))
                is_answered = True
            # Whatever a dying replica raises, the next one may answer.
            except Exception as error:
                if self.model is None or is_answered:
                    logger.warning("no engine replica answers: %r", error, exc_info=True)
                is_answered = False
            await self.board.rest(CHECK_IN_INTERVAL_S)

    def _hear(self, statuses: tuple[EngineStatus, ...]) -> None:
        """Take the answers of one check-in, and keep what silent replicas said before."""
        now_s = self._clock()
        answered = {status.pid for status in statuses}
        silent = (
            (heard_at_s, status)
            for heard_at_s, status in self._heard
            if status.pid not in answered and now_s - heard_at_s <= _GRACE_S
        )
        self._heard = (*((now_s, status) for status in statuses), *silent)
        self.board.hear(statuses)

    async def _ask_for_model(self) -> LoadedModel:
        card: ModelCard | None = None
        files: dict[str, bytes] = {}
        async for part in self._client.describe():
            if isinstance(part, FilePart):
                files[part.name] = files.get(part.name, b"") + part.content
            else:
                card = part
        if card is None:
            raise RuntimeError("an engine replica described no model")
        tokenizer = await asyncio.to_thread(TextTokenizer, files)
        return LoadedModel(card, tokenizer, int(time.time()))

    def _is_loading(self) -> bool:
        return self._report is not None and self._clock() - self._report[0] < _FRESH_REPORT_S

"""What one ingress knows of its engines: the loaded model, loading progress, and health."""

import asyncio
import logging
import time
from dataclasses import dataclass

from deployments.client import EngineClient
from deployments.openai import errors
from deployments.openai.errors import ApiError
from deployments.openai.tokenizer import TextTokenizer
from deployments.wire import EngineStatus, FilePart, LoadReport, ModelCard

CHECK_IN_INTERVAL_S = 1.0
_CHECK_IN_TIMEOUT_S = 3.0
# A replica that loads reports twice a second; older than this is history.
_FRESH_REPORT_S = 5.0

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
    """

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._report: tuple[float, LoadReport] | None = None
        self._statuses: tuple[EngineStatus, ...] = ()
        self.model: LoadedModel | None = None

    @property
    def statuses(self) -> tuple[EngineStatus, ...]:
        """The latest status of each replica that answered."""
        return self._statuses

    def note(self, report: LoadReport) -> None:
        """Take a loading replica's report."""
        self._report = (time.monotonic(), report)

    def progress(self) -> LoadReport:
        """Return the latest report of a loading replica."""
        if self._report is None:
            return LoadReport(replica="", phase="starting", fraction=0.0, elapsed_s=0.0)
        return self._report[1]

    def why_not_ready(self) -> str | None:
        """Return why no request should be sent here now; None where one can."""
        if self.model is None:
            return self.progress().problem or "loading"
        if not self._statuses:
            return "no engine replica answers"
        if any(status.is_healthy for status in self._statuses):
            return None
        return self._statuses[0].sentence

    def refusal(self) -> ApiError | None:
        """Return the error for requests that would only wait for a model to load."""
        if self.model is not None and (self._statuses or not self._is_loading()):
            return None
        progress = self.progress()
        if progress.problem is not None:
            return errors.load_failed(progress.problem)
        return errors.server_loading(progress.phase, int(progress.fraction * 100))

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            try:
                async with asyncio.timeout(None if self.model is None else _CHECK_IN_TIMEOUT_S):
                    if self.model is None:
                        self.model = await self._ask_for_model()
                    self._statuses = await self._client.check_in()
            # Whatever a dying replica raises, the next one may answer.
            except Exception as error:
                if self.model is None or self._statuses:
                    logger.warning("no engine replica answers: %r", error, exc_info=True)
                self._statuses = ()
            await asyncio.sleep(CHECK_IN_INTERVAL_S)

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
        return self._report is not None and time.monotonic() - self._report[0] < _FRESH_REPORT_S

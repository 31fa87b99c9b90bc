"""How far a replica's loading is, told to the ingresses while it lasts."""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from deployments.wire import LoadReport

_REPORT_INTERVAL_S = 0.5

logger = logging.getLogger(__name__)


class LoadProgress:
    """Where loading is; written by the loading thread, sent by the event loop."""

    def __init__(self, report: Callable[[LoadReport], Awaitable[None]]) -> None:
        self._report = report
        self._began_at_s = time.monotonic()
        self._latest = ("starting", 0.0)

    def note(self, phase: str, fraction: float) -> None:
        """Enter how far it is; called by whoever loads."""
        if phase != self._latest[0]:
            logger.info("loading: %s", phase)
        self._latest = (phase, fraction)

    async def keep_reporting(self) -> None:
        """Report twice a second until cancelled."""
        while True:
            await self.send()
            await asyncio.sleep(_REPORT_INTERVAL_S)

    async def send(self, problem: str | None = None) -> None:
        """Report once."""
        phase, fraction = self._latest
        elapsed_s = time.monotonic() - self._began_at_s
        # An ingress may not be there yet; loading goes on without an audience.
        with suppress(Exception):
            await self._report(LoadReport(str(os.getpid()), phase, fraction, elapsed_s, problem))

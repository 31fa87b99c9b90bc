"""All that stands before the routes of one app, in its order."""

import logging
from collections.abc import Mapping
from pathlib import Path

from fastapi import FastAPI, Response

from deployments.guard.auth import Auth
from deployments.guard.body_limit import BodyLimit
from deployments.guard.deadlines import Deadlines
from deployments.guard.key_limits import LimitedKeys
from deployments.guard.keys_file import KeysFile
from deployments.guard.request_ids import RequestIds
from deployments.guard.settings import GuardSettings

logger = logging.getLogger(__name__)


class Guard:
    """Asks for keys, and bounds what is asked."""

    def __init__(self, settings: GuardSettings | None = None, *, is_in_serve: bool = False) -> None:
        """Read the keys file where there is one.

        Args:
            settings: The settings; by default nobody needs a key.
            is_in_serve: Whether Ray Serve carries the answers.
        """
        settings = settings or GuardSettings()
        self._bounds = settings.bounds
        self._is_in_serve = is_in_serve
        path = settings.keys_file
        self._keys = None if path is None else KeysFile(Path(path))
        if path is None and is_in_serve:
            logger.warning(
                "args.keys_file is not set: whoever reaches the port may ask for everything"
            )

    def stand_before(self, app: FastAPI, pages: Mapping[str, Response] | None = None) -> None:
        """Put everything before the app's routes; the last one added meets a request first.

        Args:
            app: The app.
            pages: As `Auth` takes them.
        """
        app.add_middleware(BodyLimit, self._bounds.max_body_bytes)
        app.add_middleware(Deadlines, self._bounds)
        if self._keys is not None:
            app.add_middleware(LimitedKeys)
            app.add_middleware(Auth, self._keys, pages or {})
        app.add_middleware(RequestIds, is_echoed_by_server=self._is_in_serve)

    async def run(self) -> None:
        """Follow the keys file until cancelled."""
        if self._keys is not None:
            await self._keys.run()

    @property
    def keys_problem(self) -> str | None:
        """Why the keys file, as it is now, was not taken; None where nothing is wrong."""
        return None if self._keys is None else self._keys.problem

    def why_not_ready(self) -> str | None:
        """Return why nobody can be let in; None where somebody can. It tells strangers nothing."""
        if self._keys is None or len(self._keys.ring):
            return None
        return "no API key is in force: the log says what is wrong with the keys file"

"""The keys in force: what the keys file says, read again whenever it changes."""

import asyncio
import logging
from pathlib import Path

from deployments.guard.keys import MAX_FILE_BYTES, KeyRing, read_keys
from dflash.errors import ConfigError

LOOK_INTERVAL_S = 1.0

logger = logging.getLogger(__name__)


class KeysFile:
    """Keys from a file that may change at any time, such as a mounted Secret.

    A file that cannot be used changes nothing: the keys before it stay in force. Where there were
    none before it, nobody is let in.

    Attributes:
        ring: The keys in force.
        problem: Why the file, as it is now, was not taken; None where it was.
    """

    def __init__(self, path: Path) -> None:
        """Read the file for the first time."""
        self._path = path
        self._seen: bytes | str | None = None
        self.ring = KeyRing()
        self.problem: str | None = None
        self.look()

    async def run(self) -> None:
        """Look at the file again and again until cancelled."""
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Take the file's keys if it is not as it was; say so once."""
        # All of it, not its time: a Secret is swapped by a link, and clocks tick in milliseconds.
        content = self._content()
        if content == self._seen:
            return
        self._seen = content
        try:
            if isinstance(content, str):
                raise ConfigError(content)
            self.ring = KeyRing(read_keys(content))
        except ConfigError as error:
            self.problem = f"{self._path}: {error}"
            now = "those before it stay" if len(self.ring) else "so far none is"
            logger.error("API keys not taken, %s in force: %s", now, self.problem)
            return
        self.problem = None
        logger.info("%d API keys are in force, from %s", len(self.ring), self._path)

    def _content(self) -> bytes | str:
        """Return what the file holds; a sentence where it cannot be read."""
        try:
            with self._path.open("rb") as file:
                return file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            return f"it cannot be read: {error.strerror or error}"

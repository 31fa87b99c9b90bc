"""A file of lines that grows to a bound, written beside the steps: it never waits nor fails one."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TextIO, TypeVar

from dflash.errors import ConfigError

Item = TypeVar("Item")

_DEFAULT_BYTES = 64 << 20
_LEAST_BYTES = 1 << 16
_MAX_QUEUED = 1024
# After the disk refused something it is left alone for so long, seconds.
_RETRY_S = 10.0
_STOP_S = 2.0

logger = logging.getLogger(__name__)


class LineFile(Generic[Item]):
    """What is put here becomes lines, in a thread that may be slow without anybody waiting for it.

    Where it cannot keep up, or the disk refuses, items are lost and counted. When the file has
    reached half of its bound it is moved aside, in the place of the one that was moved before.
    """

    def __init__(
        self,
        path: Path,
        text_of: Callable[[Item, bool], str],
        max_bytes: int = _DEFAULT_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to write; nothing is opened yet.

        Args:
            path: The file. An older one there is moved aside, too.
            text_of: Gives the lines of an item, ASCII with their ends; told whether they are the
                first ones of a file, and called in the thread.
            max_bytes: Bound of this file and the one that was moved aside.
            clock: Tells the time, seconds.

        Raises:
            ConfigError: The bound is too small to hold anything.
        """
        if max_bytes < _LEAST_BYTES:
            raise ConfigError(
                f"max_bytes of {path.name} must be {_LEAST_BYTES} or more, got {max_bytes}; "
                f"try {_DEFAULT_BYTES}"
            )
        self._path = path
        self._text_of = text_of
        self._file_bytes = max_bytes // 2
        self._clock = clock
        self._items: queue.Queue[Item | None] = queue.Queue(_MAX_QUEUED)
        self._file: TextIO | None = None
        self._written = 0
        self._retry_at_s = float("-inf")
        self._thread = threading.Thread(target=self._keep_writing, name=path.name, daemon=True)
        # Each is counted by one thread alone.
        self._num_refused = 0
        self._num_failed = 0

    @property
    def num_lost(self) -> int:
        """Items that were put and not written."""
        return self._num_refused + self._num_failed

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, item: Item) -> None:
        """Hand over an item; returns at once."""
        try:
            self._items.put_nowait(item)
        except queue.Full:
            self._num_refused += 1

    def stop(self) -> None:
        """Write what was put and close the file; a disk that hangs is not waited for."""
        try:
            self._items.put(None, timeout=_STOP_S)
        except queue.Full:
            return
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def _keep_writing(self) -> None:
        while (item := self._items.get()) is not None:
            self._write(item)
        self._close()

    def _write(self, item: Item) -> None:
        if self._clock() < self._retry_at_s:
            self._num_failed += 1
            return
        try:
            self._append(item)
            if self._file is not None and self._items.empty():
                self._file.flush()
        except OSError as error:
            self._num_failed += 1
            self._retry_at_s = self._clock() + _RETRY_S
            logger.warning(
                "%s cannot be written, its lines are lost meanwhile: %s", self._path, error
            )
            # The next line may have followed half a line, so it begins a new file.
            self._close()
        # Whatever is wrong with one item, the next may do.
        except Exception as error:
            self._num_failed += 1
            logger.warning("an item of %s is lost: %r", self._path, error, exc_info=True)

    def _append(self, item: Item) -> None:
        is_first = self._file is None
        text = self._text_of(item, is_first)
        if len(text) > self._file_bytes:
            raise ValueError(f"its lines of {len(text)} bytes are over half of the file's bound")
        if not is_first and self._written + len(text) > self._file_bytes:
            self._close()
            text = self._text_of(item, True)
        file = self._file or self._opened()
        file.write(text)
        self._written += len(text)

    def _opened(self) -> TextIO:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            self._path.replace(aside(self._path))
        self._file, self._written = self._path.open("w", encoding="ascii"), 0
        return self._file

    def _close(self) -> None:
        file, self._file = self._file, None
        try:
            if file is not None:
                file.close()
        except OSError as error:
            logger.warning("%s is not whole: %s", self._path, error)


def aside(path: Path) -> Path:
    """Return where a full file is moved to: ``signals.jsonl`` becomes ``signals.1.jsonl``."""
    return path.with_stem(f"{path.stem}.1")

"""What other threads ask of the engine's thread, kept until it has time between two steps."""

import threading
from collections import deque
from dataclasses import dataclass

from dflash.config import EngineLimits
from dflash.grammar.matcher import Matcher
from dflash.plan import Planner
from dflash.request import GenerateRequest


@dataclass(frozen=True, slots=True)
class Submit:
    """Let this request wait, with the matcher of its grammar where it has one."""

    request: GenerateRequest
    matcher: Matcher | None = None


@dataclass(frozen=True, slots=True)
class Abort:
    """End this request, if it lives."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Reconfigure:
    """Work under these limits from now on."""

    limits: EngineLimits


@dataclass(frozen=True, slots=True)
class Replan:
    """Let this planner decide from now on."""

    planner: Planner


@dataclass(frozen=True, slots=True)
class LookAround:
    """Let the planner look at what changed while nothing runs."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the thread."""


Message = Submit | Abort | Reconfigure | Replan | LookAround | Stop


class Mailbox:
    """Messages in the order they came. Any thread puts, the engine's thread takes them all."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._has_mail = threading.Condition()

    def put(self, message: Message) -> None:
        """Add a message and wake the engine's thread."""
        with self._has_mail:
            self._messages.append(message)
            self._has_mail.notify()

    def take_all(self, *, wait: bool) -> list[Message]:
        """Return and remove all messages; where there is none, sleep until one comes if told to."""
        with self._has_mail:
            while wait and not self._messages:
                self._has_mail.wait()
            messages = list(self._messages)
            self._messages.clear()
            return messages

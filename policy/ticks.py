"""What a simulated run leaves behind: its decisions, and the requests that are done."""

from collections.abc import Mapping
from dataclasses import dataclass

from policy.arms import Arm


@dataclass(frozen=True, slots=True)
class Tick:
    """The steps between two decisions.

    Attributes:
        at_s: When they began, seconds.
        seconds: How long they took.
        own_s: How long they would have taken without noise, which would hit plain decoding alike.
        decode_s: The same without the prompts' share.
        num_rows: Requests that decoded in the first of them.
        arm: What ran.
        is_probe: It was a trial, as far as its controller says.
        worth: What they were truly worth, though only some may have drafted, or a context had to be
            caught up with.
        worths: What every arm would have been worth.
        plain_s: Time in which plain decoding would have done the same work, without noise.
    """

    at_s: float
    seconds: float
    own_s: float
    decode_s: float
    num_rows: int
    arm: Arm
    is_probe: bool
    worth: float
    worths: Mapping[Arm, float]
    plain_s: float


@dataclass(frozen=True, slots=True)
class Finished:
    """One request that is done.

    Attributes:
        queue_s: From its arrival to its first token, seconds.
        decode_s: From its first token to its last, seconds.
        num_tokens: Tokens it emitted.
    """

    queue_s: float
    decode_s: float
    num_tokens: int

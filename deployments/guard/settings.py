"""What a guard is told: where the keys are, and the bounds of any one request."""

from dataclasses import dataclass, field

from dflash.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RequestBounds:
    """How large a request may be, and how long it may take.

    Attributes:
        max_body_bytes: Longest body.
        default_timeout_s: Longest time from its arrival to its last byte, where the client asks
            for none; what official clients wait by default.
        max_timeout_s: The most that a client can ask for.
    """

    max_body_bytes: int = 4 * 1024 * 1024
    default_timeout_s: float = 600.0
    max_timeout_s: float = 3600.0

    def __post_init__(self) -> None:
        if not 1024 <= self.max_body_bytes <= 1024**3:
            raise ConfigError(
                f"requests.max_body_bytes must be in [1024, {1024**3}], got {self.max_body_bytes}"
            )
        for key in ("default_timeout_s", "max_timeout_s"):
            value = getattr(self, key)
            if not 0.001 <= value <= 86_400:
                raise ConfigError(f"requests.{key} must be in [0.001, 86400] seconds, got {value}")
        if self.default_timeout_s > self.max_timeout_s:
            raise ConfigError(
                f"requests.default_timeout_s is {self.default_timeout_s}, over max_timeout_s "
                f"{self.max_timeout_s}: lower it, or raise max_timeout_s"
            )


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """What a guard is told.

    Attributes:
        keys_file: Path of the keys file; None lets everybody in.
        bounds: Of any one request.
    """

    keys_file: str | None = None
    bounds: RequestBounds = field(default_factory=RequestBounds)

"""What can go wrong in the engine, one class a kind, each message naming the value and the fix."""

OUT_OF_MEMORY = (
    "the device had no memory left while computing this request; retry it, or a shorter one"
)


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an exception is about memory: Python's own, or torch's.

    Torch's are told by their words: not everyone who reads errors loads torch, and that of a CPU
    has no class of its own.
    """
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "DefaultCPUAllocator" in str(error)
    )


class EngineError(Exception):
    """Base of every error the engine raises on purpose. One text argument, so it pickles."""


class ConfigError(EngineError):
    """A setting cannot work. The message names the key, the value and one that would work."""


class CheckpointError(EngineError):
    """A checkpoint is missing, truncated, misshapen or of an unknown family."""


class NotHereError(CheckpointError):
    """A checkpoint is not on this machine, and nothing may be fetched to look into it."""


class CacheFolderError(EngineError):
    """The cache folder cannot be used: read-only, full or not a folder."""


class KernelError(EngineError):
    """A compiled kernel could not be built, or was called with shapes it cannot take."""


class AccountingError(EngineError):
    """The engine's own books disagree. Always a fault of ours, never of a request."""


class PlanError(EngineError):
    """A plan asks for what the engine does not have."""


class DrafterReleasedError(EngineError):
    """A drafter was asked while its weights are not in memory."""


class ProfileError(EngineError):
    """Step times could not be measured."""


class RequestError(EngineError):
    """One request cannot be served as asked.

    Attributes:
        field: The parameter at fault, in the words of the HTTP API (``max_tokens``).
    """

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message, field)
        self.field = field

    def __str__(self) -> str:
        return str(self.args[0])


class OverloadedError(EngineError):
    """The queue is full. The caller may retry.

    Attributes:
        retry_after_s: When a retry has a fair chance, seconds.
    """

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message, retry_after_s)
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return str(self.args[0])

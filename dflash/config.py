"""The engine's settings: frozen, checked on construction, every message names the key."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

from dflash.errors import ConfigError

EMBEDDED_MODEL = "smollm2-135m-instruct"
AUTO_DRAFTER = "auto"
AUTO_LENGTH: Final = "auto"
# Slots of the longest draft block: it has to fit one page.
MAX_BLOCK_SIZE = 16


class Dtype(StrEnum):
    """Type of weights, activations and KV pages."""

    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


class Exactness(StrEnum):
    """What the engine promises about the logits of a committed token.

    ``bitwise``: equal to plain decoding of that request alone, bit for bit.
    ``relaxed``: equal up to the rounding of the machine's own batch-dependent kernels.
    """

    BITWISE = "bitwise"
    RELAXED = "relaxed"


@dataclass(frozen=True, slots=True)
class KVCacheConfig:
    """Size and shape of the paged KV cache.

    Attributes:
        page_size: Tokens a page holds. Fixed by the attention kernels.
        memory_gib: Memory for pages, GiB; None takes 0.5, or follows ``memory_share``.
        memory_share: Share of the memory that all parts of the engine may take together; the pages
            get what the others leave of it.
        prefix_caching: Whether finished prompts' full pages are kept and shared.
    """

    page_size: int = 16
    memory_gib: float | None = None
    memory_share: float | None = None
    prefix_caching: bool = True

    def __post_init__(self) -> None:
        if self.page_size != 16:
            raise ConfigError(
                f"engine.kv_cache.page_size must be 16, got {self.page_size}: the attention "
                "kernels work on pages of 16 tokens; leave the key out"
            )
        if self.memory_share is not None and self.memory_gib is not None:
            raise ConfigError(
                f"engine.kv_cache.memory_share is {self.memory_share} beside memory_gib "
                f"{self.memory_gib}; both size the pages: leave one out"
            )
        if self.memory_share is not None and not 0 < self.memory_share <= 1:
            raise ConfigError(
                f"engine.kv_cache.memory_share must be in (0, 1], got {self.memory_share}; try 0.9"
            )
        if self.memory_gib is not None and not 0.001 <= self.memory_gib <= 1024:
            raise ConfigError(
                f"engine.kv_cache.memory_gib must be in [0.001, 1024], got {self.memory_gib}; "
                "try 0.5"
            )


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Bounds of one step and of the queue; replaced whole between two steps, never edited.

    Attributes:
        max_num_seqs: Most requests that run at once.
        max_num_batched_tokens: Most tokens one step computes.
        max_num_waiting: Most requests that wait; one more is refused as overload.
        max_waiting_tokens: Most prompt tokens that wait, over all waiting requests.
    """

    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    max_num_waiting: int = 256
    max_waiting_tokens: int = 262_144

    def __post_init__(self) -> None:
        for key in (
            "max_num_seqs",
            "max_num_batched_tokens",
            "max_num_waiting",
            "max_waiting_tokens",
        ):
            value = getattr(self, key)
            if value < 1:
                raise ConfigError(f"engine.limits.{key} must be 1 or more, got {value}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"engine.limits.max_num_batched_tokens is {self.max_num_batched_tokens}, under "
                f"max_num_seqs {self.max_num_seqs}: every running request needs one token a step"
            )


@dataclass(frozen=True, slots=True)
class SpeculationConfig:
    """Which drafters propose tokens, and how many at first.

    Attributes:
        drafter: A folder or a hub id of a drafter's checkpoint, or several of them, each of a kind
            of its own: the first drafts as the engine starts. ``auto`` takes the embedded model's
            own, where that is served and they fit; None takes none.
        draft_length: Draft tokens verified for each request and step; 0 decodes plainly. ``auto``
            leaves drafter and length to the policy, which decides every few steps.
        record_dir: Folder where the policy writes its decisions and all they looked at, in bounded
            files; None keeps the newest decisions in memory.
    """

    drafter: str | tuple[str, ...] | None = AUTO_DRAFTER
    draft_length: int | Literal["auto"] = AUTO_LENGTH
    record_dir: str | None = None

    def __post_init__(self) -> None:
        length = self.draft_length
        if length != AUTO_LENGTH and not 0 <= length < MAX_BLOCK_SIZE:
            raise ConfigError(
                f"engine.speculation.draft_length must be in [0, {MAX_BLOCK_SIZE - 1}] or "
                f"{AUTO_LENGTH!r}, got {length}"
            )
        if self.drafter == ():
            raise ConfigError(
                "engine.speculation.drafter is an empty list; name a drafter, or null for none"
            )
        if length not in (0, AUTO_LENGTH) and self.drafter is None:
            raise ConfigError(
                f"engine.speculation.draft_length is {length}, but there is no drafter; "
                "name one in engine.speculation.drafter, or set draft_length to 0"
            )


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything the engine needs to load a model and start.

    Attributes:
        model: The embedded model's name, a folder, or a hub id of a safetensors checkpoint.
        dtype: Type of weights, activations and KV pages.
        exactness: What is promised; ``bitwise`` never falls back to ``relaxed`` by itself.
        max_model_len: Most positions of a sequence; None takes the model's own.
        num_threads: Threads of the engine's kernels; None takes all CPUs this process may use.
        cache_dir: Folder for converted models; None is the user's cache. Compiled kernels lie in
            ``$DFLASH_CACHE_DIR`` or the user's cache: they belong to the machine, not to a model.
        kv_cache: The pages.
        limits: The bounds of a step, replaceable at run time.
        speculation: The drafter.
    """

    model: str = EMBEDDED_MODEL
    dtype: Dtype = Dtype.BFLOAT16
    exactness: Exactness = Exactness.BITWISE
    max_model_len: int | None = None
    num_threads: int | None = None
    cache_dir: str | None = None
    kv_cache: KVCacheConfig = field(default_factory=KVCacheConfig)
    limits: EngineLimits = field(default_factory=EngineLimits)
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)

    def __post_init__(self) -> None:
        if self.max_model_len is not None and self.max_model_len < 2:
            raise ConfigError(
                f"engine.max_model_len must be 2 or more, got {self.max_model_len}; "
                "leave it out for the model's own"
            )
        if self.num_threads is not None and not 1 <= self.num_threads <= 1024:
            raise ConfigError(
                f"engine.num_threads must be in [1, 1024], got {self.num_threads}; "
                "leave it out for all CPUs"
            )

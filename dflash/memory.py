"""Where the memory goes, in bytes, by component: planned before anything is loaded."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dflash.config import Dtype, EngineConfig, EngineLimits, KVCacheConfig
from dflash.errors import AccountingError, ConfigError
from dflash.models.config import ModelConfig, max_model_len, tensor_shapes
from dflash.models.registry import program_for
from dflash.program import Embed, Linear, Program, RmsNorm, Rows

GIB = 1 << 30
MIB = 1 << 20
FLOAT32_BYTES = 4
DTYPE_BYTES = {Dtype.BFLOAT16: 2, Dtype.FLOAT32: 4}
DEFAULT_KV_GIB = 0.5
# A verify run: the anchor and the longest draft.
_MAX_LOGIT_ROWS_PER_SEQ = 8


@dataclass(frozen=True, slots=True)
class DrafterSizes:
    """What a drafter will hold.

    Attributes:
        weights_bytes: Weights of its own, and its rotary table.
        page_bytes: Keys and values of one page; it has as many pages as the target, and scratch.
        num_scratch_pages: Pages for draft blocks.
        activation_bytes: Buffers of its largest passes.
    """

    weights_bytes: int
    page_bytes: int
    num_scratch_pages: int
    activation_bytes: int

    def kv_bytes(self, num_pages: int) -> int:
        """Return the bytes of its pages beside as many of the target's."""
        return (num_pages + self.num_scratch_pages) * self.page_bytes


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What each component will hold; the parts sum to the total.

    Attributes:
        weights_bytes: Weights as the kernels hold them, and the rotary table.
        kv_reserved_bytes: KV pages.
        activation_peak_bytes: Buffers of the largest step.
        other_bytes: What was in use before: the interpreter, libraries, other processes.
        headroom_bytes: What stays free.
        total_bytes: What this process may use in all.
        num_pages: Pages in ``kv_reserved_bytes``.
        page_size: Tokens a page holds.
        drafter_weights_bytes: As ``weights_bytes``, of the drafters; 0 without one.
        drafter_kv_bytes: Their KV pages, scratch pages included.
    """

    weights_bytes: int
    kv_reserved_bytes: int
    activation_peak_bytes: int
    other_bytes: int
    headroom_bytes: int
    total_bytes: int
    num_pages: int
    page_size: int
    drafter_weights_bytes: int = 0
    drafter_kv_bytes: int = 0

    def __post_init__(self) -> None:
        parts = self.parts
        if sum(parts.values()) != self.total_bytes or min(parts.values()) < 0:
            raise AccountingError(
                f"the memory plan's parts {parts} do not sum to the total {self.total_bytes}, or "
                "one of them is negative"
            )

    @property
    def parts(self) -> dict[str, int]:
        """Bytes of each component by its name; the drafter's only where there is one."""
        drafter = {
            "drafter weights": self.drafter_weights_bytes,
            "drafter KV pages": self.drafter_kv_bytes,
        }
        return {
            "weights": self.weights_bytes,
            "KV pages": self.kv_reserved_bytes,
            **(drafter if self.drafter_weights_bytes else {}),
            "activation peak": self.activation_peak_bytes,
            "other": self.other_bytes,
            "headroom": self.headroom_bytes,
        }


def plan_memory(
    model: ModelConfig,
    engine: EngineConfig,
    total_bytes: int,
    other_bytes: int,
    drafters: Sequence[DrafterSizes] = (),
) -> MemoryPlan:
    """Return the plan, from sizes alone.

    Args:
        model: The checkpoint's config.
        engine: The settings.
        total_bytes: What this process may use in all.
        other_bytes: What is in use already.
        drafters: What each drafter adds.

    Raises:
        ConfigError: The parts exceed the total, or the pages cannot hold one sequence of
            ``max_model_len``. The message holds the sum and the settings that would fit.
    """
    program = program_for(model)
    page_bytes = program.attention.elements_per_page * DTYPE_BYTES[engine.dtype]
    drafter_page_bytes = sum(drafter.page_bytes for drafter in drafters)

    def sizes_with(num_pages: int) -> dict[str, int]:
        return {
            "weights_bytes": weights_bytes(model, engine),
            "kv_reserved_bytes": num_pages * page_bytes,
            "drafter_weights_bytes": sum(drafter.weights_bytes for drafter in drafters),
            "drafter_kv_bytes": sum(drafter.kv_bytes(num_pages) for drafter in drafters),
            "activation_peak_bytes": activation_peak_bytes(program, engine.limits, engine.dtype)
            + sum(drafter.activation_bytes for drafter in drafters),
            "other_bytes": other_bytes,
        }

    share = engine.kv_cache.memory_share
    if share is None:
        num_pages = int((engine.kv_cache.memory_gib or DEFAULT_KV_GIB) * GIB) // page_bytes
    else:
        # Whatever others hold: a reservation that followed them would differ between replicas.
        own_bytes = sum(sizes_with(0).values()) - other_bytes
        room_bytes = int(share * total_bytes) - own_bytes
        num_pages = max(0, room_bytes // (page_bytes + drafter_page_bytes))
    sizes = sizes_with(num_pages)
    needed_bytes = sum(sizes.values())
    needed = MemoryPlan(
        **sizes,
        headroom_bytes=0,
        total_bytes=needed_bytes,
        num_pages=num_pages,
        page_size=engine.kv_cache.page_size,
    )
    if needed_bytes > total_bytes:
        raise ConfigError(_does_not_fit(needed, total_bytes, page_bytes, drafter_page_bytes, share))
    _check_longest_sequence(model, engine, num_pages, page_bytes)
    headroom_bytes = total_bytes - needed_bytes
    return replace(needed, headroom_bytes=headroom_bytes, total_bytes=total_bytes)


def weights_bytes(model: ModelConfig, engine: EngineConfig) -> int:
    """Return the bytes of the weights as the kernels hold them, and of the rotary table.

    Each matrix is kept once, packed. The embedding table is read by rows, so a model whose
    head is tied to it keeps it twice: as it is, and packed. Padding of odd widths is left out.
    """
    shapes = tensor_shapes(model)
    names: list[str] = []
    for operation in program_for(model).operations:
        if isinstance(operation, Linear):
            names += operation.weights
        elif isinstance(operation, Embed | RmsNorm):
            names.append(operation.weight)
    elements = sum(math.prod(shapes[name]) for name in names)
    positions = max_model_len(model, engine.max_model_len)
    # A sine and a cosine for half of the head's dimensions each.
    rotary_bytes = positions * model.head_dim * FLOAT32_BYTES
    return elements * DTYPE_BYTES[engine.dtype] + rotary_bytes


def activation_peak_bytes(program: Program, limits: EngineLimits, dtype: Dtype) -> int:
    """Return the bytes of the forward's buffers in the largest step that ``limits`` allow.

    Logits are wanted for at most one verify run of each sequence, and never for more rows than the
    step has.
    """
    num_logits = min(limits.max_num_seqs * _MAX_LOGIT_ROWS_PER_SEQ, limits.max_num_batched_tokens)
    rows = {Rows.TOKENS: limits.max_num_batched_tokens, Rows.LOGITS: num_logits}
    return buffer_bytes(program, rows, dtype)


def buffer_bytes(program: Program, rows: Mapping[Rows, int], dtype: Dtype) -> int:
    """Return the bytes of a program's buffers for a number of rows of each kind."""
    return sum(
        rows[buffer.rows]
        * buffer.width
        * (FLOAT32_BYTES if buffer.is_float32 else DTYPE_BYTES[dtype])
        for buffer in program.buffers.values()
    )


def format_plan(plan: MemoryPlan) -> str:
    """Return the table that is printed at start."""
    tokens = plan.num_pages * plan.page_size
    notes = {
        "KV pages": f"  {plan.num_pages:,} pages, {tokens:,} tokens",
        "other": "  in use already, by all processes",
    }
    rows = [
        f"  {name:<16}{_mib(size):>14}{notes.get(name, '')}"
        for name, size in (plan.parts | {"total": plan.total_bytes}).items()
    ]
    return "\n".join(["memory plan", *rows])


def _does_not_fit(
    needed: MemoryPlan,
    total_bytes: int,
    page_bytes: int,
    drafter_page_bytes: int,
    share: float | None,
) -> str:
    parts = {name: size for name, size in needed.parts.items() if name != "headroom"}
    written_out = " + ".join(f"{name} {_mib(size)}" for name, size in parts.items())
    # Each page takes a page of the drafter's with it.
    both_bytes = page_bytes + drafter_page_bytes
    room_bytes = total_bytes - needed.total_bytes + needed.num_pages * both_bytes
    largest_gib = _rounded_down(room_bytes // both_bytes * page_bytes)
    if share is not None and needed.num_pages:
        most = math.floor((1 - needed.other_bytes / total_bytes) * 1000) / 1000
        fix = f"set engine.kv_cache.memory_share to at most {most}"
    elif largest_gib > 0:
        fix = f"set engine.kv_cache.memory_gib to at most {largest_gib}"
    else:
        fix = (
            "no room is left for KV pages; take a smaller model, engine.dtype bfloat16, smaller "
            "engine.limits, or give the process more memory"
        )
    return (
        f"the engine does not fit: {written_out} = {_mib(needed.total_bytes)}, but this process "
        f"may use {_mib(total_bytes)}; {fix}"
    )


def _check_longest_sequence(
    model: ModelConfig, engine: EngineConfig, num_pages: int, page_bytes: int
) -> None:
    page_size = engine.kv_cache.page_size
    num_tokens = num_pages * page_size
    positions = max_model_len(model, engine.max_model_len)
    if num_tokens < positions:
        needed_gib = _rounded_up(-(-positions // page_size) * page_bytes)
        or_shorter = f", or engine.max_model_len to {num_tokens} or less" if num_tokens else ""
        raise ConfigError(
            f"{_kv_setting(engine.kv_cache)}, room for {num_tokens} tokens, but one sequence can "
            f"have {positions}; set engine.kv_cache.memory_gib to {needed_gib} or more{or_shorter}"
        )


def _kv_setting(kv_cache: KVCacheConfig) -> str:
    if kv_cache.memory_share is not None:
        return f"engine.kv_cache.memory_share is {kv_cache.memory_share}"
    return f"engine.kv_cache.memory_gib is {kv_cache.memory_gib or DEFAULT_KV_GIB}"


def _rounded_down(num_bytes: int) -> float:
    """Return GiB in the steps a person would type, the setting's least value among them."""
    return math.floor(num_bytes / GIB * 1000) / 1000


def _rounded_up(num_bytes: int) -> float:
    return math.ceil(num_bytes / GIB * 1000) / 1000


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / MIB:,.1f} MiB"

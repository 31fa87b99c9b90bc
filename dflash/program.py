"""A model's forward as data: a list of operations over named buffers.

A model family writes its forward once, as a program. Executors run it: the torch reference one
operation at a time, the compiled CPU form as a tape recorded once and replayed every step, as a
CUDA form can capture it in a graph. Buffers hold one row a token, or one row a wanted logit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from dflash.errors import CheckpointError

PAGE_SIZE = 16
"""Tokens a KV page holds; the attention kernels are written for it."""
EMBEDDING_TAP = -1
"""The tap of the rows that the first layer reads: the embedded tokens."""


class Rows(StrEnum):
    """What the rows of a buffer stand for."""

    TOKENS = "tokens"
    LOGITS = "logits"


class Epilogue(StrEnum):
    """What a linear operation does with its sums.

    ``store``: round to the activation type. ``add``: add to what the destination holds (the
    residual). ``silu_mul``: the weights are a gate and an up-projection; store
    ``silu(gate) * up``. ``float32``: store the float32 sums (logits).
    """

    STORE = "store"
    ADD = "add"
    SILU_MUL = "silu_mul"
    FLOAT32 = "float32"


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named block of rows that operations read and write.

    Attributes:
        width: Elements of a row.
        rows: What a row stands for.
        is_float32: Float32 whatever the activation type is.
    """

    width: int
    rows: Rows = Rows.TOKENS
    is_float32: bool = False


@dataclass(frozen=True, slots=True)
class Embed:
    """Look up the step's token ids in a table ``[vocab, hidden]``."""

    weight: str
    dst: str


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """``weight * round(x / sqrt(mean(x**2) + eps))``, by rows."""

    src: str
    weight: str
    dst: str
    eps: float


@dataclass(frozen=True, slots=True)
class Linear:
    """Product with the matrices ``weights``, each ``[out, in]``, stacked over their outputs."""

    src: str
    weights: tuple[str, ...]
    dst: str
    epilogue: Epilogue = Epilogue.STORE


@dataclass(frozen=True, slots=True)
class RotateAndStore:
    """Rotate queries and keys of ``[queries | keys | values]``, write keys and values to pages."""

    qkv: str
    layer: int


@dataclass(frozen=True, slots=True)
class Attend:
    """Causal attention of each row over its own sequence's pages.

    Attributes:
        qkv: Buffer of ``[queries | keys | values]``.
        dst: Where the attended rows go.
        layer: Layer of the pages.
        first: First position that has keys; rows lie at or after it.
        window: Keys must be nearer than this many positions; None sees all.
    """

    qkv: str
    dst: str
    layer: int
    first: int = 0
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Features:
    """Take the caller's rows, ``batch.features``: what a drafter's context is made from."""

    dst: str


@dataclass(frozen=True, slots=True)
class HeadNorm:
    """RMS norm over each of some parts of a row in place, such as heads before they are rotated.

    Attributes:
        heads: Buffer of parts side by side, all as wide as the weight.
        weight: ``[width of a part]``.
        first: First part to norm.
        count: How many.
        eps: Added to the mean square.
    """

    heads: str
    weight: str
    first: int
    count: int
    eps: float


@dataclass(frozen=True, slots=True)
class RotateAndStoreBlock:
    """As `RotateAndStore`, but keys and values go to the draft block's scratch page.

    Scratch pages are the last of the pages, beyond those that a sequence can have: run r of the
    batch owns page ``num_pages - 1 - r``, and slot j of its block is token j of that page. So
    nothing of a draft ever touches a sequence's pages.
    """

    qkv: str
    layer: int


@dataclass(frozen=True, slots=True)
class AttendBlock:
    """Attention of a draft block: over the context before it, then over the block itself.

    The context is every position before the block's first; the block's keys lie in its scratch
    page.

    Attributes:
        qkv: Buffer of ``[queries | keys | values]``.
        dst: Where the attended rows go.
        layer: Layer of the pages.
        window: Keys must be nearer than this many positions; None sees all.
        is_causal: Whether a slot sees only the slots up to itself.
    """

    qkv: str
    dst: str
    layer: int
    window: int | None
    is_causal: bool


@dataclass(frozen=True, slots=True)
class Convolve:
    """Two-tap dynamic convolution inside each draft block.

    ``out[t] = sum over o of (base[side, o] + kernel[t, side, o]) * src[t - o]``, by channel; taps
    before the block's first slot are zero. The dynamic part is shared by 16 neighbouring channels
    and belongs to the receiving slot. float32 sums.

    Attributes:
        src: Rows to convolve.
        kernel: Dynamic kernels, ``[side, tap, group]`` in a row, as `Linear` left them.
        base: Weight ``[2, taps, channels]``.
        dst: Where it goes.
        side: 0 before the sublayer, 1 after it.
        epilogue: ``store``, or ``add`` to what the destination holds.
    """

    src: str
    kernel: str
    base: str
    dst: str
    side: int
    epilogue: Epilogue = Epilogue.STORE


@dataclass(frozen=True, slots=True)
class Select:
    """Copy the rows whose logits are wanted."""

    src: str
    dst: str


@dataclass(frozen=True, slots=True)
class Tap:
    """Hand out a layer's output rows; skipped in steps that do not ask for it.

    Layers count from 0; `EMBEDDING_TAP` is what the first of them reads.
    """

    src: str
    layer: int


Operation = (
    Embed
    | Features
    | RmsNorm
    | HeadNorm
    | Linear
    | RotateAndStore
    | RotateAndStoreBlock
    | Attend
    | AttendBlock
    | Convolve
    | Select
    | Tap
)


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Geometry of the attention layers and their pages.

    Attributes:
        num_heads: Query heads, a multiple of ``num_kv_heads``; 0 where a program only writes keys
            and values, as that of a drafter's context does.
        num_kv_heads: Key and value heads.
        head_dim: Width of a head, a multiple of 32.
        rope_theta: Base of the rotary position frequencies.
        num_layers: Layers with pages of their own.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float
    num_layers: int

    def __post_init__(self) -> None:
        if self.head_dim % 32 or not 0 < self.head_dim <= 256:
            raise CheckpointError(
                f"head_dim is {self.head_dim}; the attention kernels take multiples of 32 up to 256"
            )
        if self.num_heads % self.num_kv_heads:
            raise CheckpointError(
                f"num_attention_heads {self.num_heads} is not a multiple of "
                f"num_key_value_heads {self.num_kv_heads}"
            )

    @property
    def qkv_width(self) -> int:
        """Width of a row that holds all queries, keys and values."""
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim

    @property
    def elements_per_page(self) -> int:
        """Elements of keys and values a page takes over all layers."""
        return 2 * PAGE_SIZE * self.num_layers * self.num_kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class Program:
    """A model's forward.

    Weights of equal names are equal tensors, in whichever program they are named: a drafter's own
    begin with ``drafter.``, and what it borrows keeps the target's name, so that executors may
    share it.

    Attributes:
        operations: In order; each may depend on all before it.
        buffers: Every buffer the operations name.
        attention: Geometry of attention and pages.
        outputs: Names of the buffers that hold its results at the end, the logits first; none
            where all it does is write pages.
    """

    operations: tuple[Operation, ...]
    buffers: Mapping[str, Buffer]
    attention: AttentionShape
    outputs: tuple[str, ...]

    @property
    def logits(self) -> str:
        """Name of the buffer that holds the logits."""
        return self.outputs[0]

"""What a drafter will hold in memory, from configs alone."""

import math

from dflash.config import Dtype, EngineLimits
from dflash.drafters.borrowed import REDUCED_HEAD, SCALED_EMBEDDING, borrowed_names
from dflash.drafters.checkpoint import CODEBOOKS, DrafterConfig, drafter_tensor_shapes
from dflash.drafters.config import DFlashConfig
from dflash.drafters.dflash_program import block_program, context_program
from dflash.drafters.mtp_config import MtpConfig
from dflash.drafters.mtp_program import mtp_programs
from dflash.drafters.names import OWN
from dflash.memory import DTYPE_BYTES, FLOAT32_BYTES, DrafterSizes, buffer_bytes
from dflash.program import (
    PAGE_SIZE,
    Convolve,
    Embed,
    HeadNorm,
    Linear,
    Operation,
    Program,
    RmsNorm,
    Rows,
)


def drafter_sizes(
    config: DrafterConfig, target: Program, limits: EngineLimits, dtype: Dtype, num_positions: int
) -> DrafterSizes:
    """Return what a drafter will hold.

    Args:
        config: The drafter's.
        target: The target's forward.
        limits: Bounds of a step; each running sequence has a scratch page where draft blocks do.
        dtype: Type of weights, activations and KV pages.
        num_positions: Positions that the rotary table covers.
    """
    match config:
        case MtpConfig():
            return _mtp_sizes(config, target, limits, dtype, num_positions)
        case _:
            return _dflash_sizes(config, target, limits, dtype, num_positions)


def _mtp_sizes(
    config: MtpConfig, target: Program, limits: EngineLimits, dtype: Dtype, num_positions: int
) -> DrafterSizes:
    context, *links = mtp_programs(config, target)
    elements = _weight_elements(config, context, *links)
    rotary_bytes = num_positions * config.attention.head_dim * FLOAT32_BYTES
    rows = {Rows.TOKENS: limits.max_num_seqs}
    context_rows = {Rows.TOKENS: limits.max_num_batched_tokens}
    # Beside keys and values, what the target's last layer gave for each token.
    page_elements = config.attention.elements_per_page + PAGE_SIZE * config.hidden_size
    return DrafterSizes(
        weights_bytes=elements * DTYPE_BYTES[dtype] + rotary_bytes,
        page_bytes=page_elements * DTYPE_BYTES[dtype],
        num_scratch_pages=0,
        activation_bytes=buffer_bytes(context, context_rows, dtype)
        + sum(buffer_bytes(link, rows, dtype) for link in links),
    )


def _dflash_sizes(
    config: DFlashConfig, target: Program, limits: EngineLimits, dtype: Dtype, num_positions: int
) -> DrafterSizes:
    context, block = context_program(config), block_program(config, borrowed_names(config, target))
    elements = _weight_elements(config, context, block)
    rotary_bytes = num_positions * config.attention.head_dim * FLOAT32_BYTES
    slots = limits.max_num_seqs * config.block_size
    rows = {Rows.TOKENS: slots, Rows.LOGITS: slots - limits.max_num_seqs}
    context_rows = {Rows.TOKENS: limits.max_num_batched_tokens}
    return DrafterSizes(
        weights_bytes=elements * DTYPE_BYTES[dtype] + rotary_bytes,
        page_bytes=config.attention.elements_per_page * DTYPE_BYTES[dtype],
        num_scratch_pages=limits.max_num_seqs,
        activation_bytes=buffer_bytes(context, context_rows, dtype)
        + buffer_bytes(block, rows, dtype),
    )


def _weight_elements(config: DrafterConfig, *programs: Program) -> int:
    """Return the elements of the drafter's own weights, once for each stack they are packed in."""
    shapes = {OWN + name: shape for name, shape in drafter_tensor_shapes(config).items()}
    shapes[REDUCED_HEAD] = (config.draft_vocab_size, config.hidden_size)
    shapes[SCALED_EMBEDDING] = (config.vocab_size, config.hidden_size)
    stacks = {_weights_of(each) for program in programs for each in program.operations}
    names = [name for stack in stacks for name in stack if name.startswith(OWN)]
    if isinstance(config, DFlashConfig) and config.selector_rank:
        names += [OWN + name for name in CODEBOOKS]
    return sum(math.prod(shapes[name]) for name in names)


def _weights_of(operation: Operation) -> tuple[str, ...]:
    match operation:
        case Linear(weights=names):
            return names
        case Embed(weight=name) | RmsNorm(weight=name) | HeadNorm(weight=name):
            return (name,)
        case Convolve(base=name):
            return (name,)
        case _:
            return ()

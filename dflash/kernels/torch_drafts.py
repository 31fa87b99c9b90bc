"""The operations that only draft blocks have, in plain torch: each block by itself."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from dflash.batch import Batch
from dflash.kernels.pages import PAGE_SIZE
from dflash.program import AttendBlock


def scratch_slots(batch: Batch, num_pages: int) -> tuple[Tensor, Tensor]:
    """Return the scratch page and the slot in it of each row of a batch of draft blocks.

    Shapes:
        returns: both ``[num_tokens]`` int64.
    """
    runs = batch.run_of_token.long()
    return num_pages - 1 - runs, torch.arange(batch.num_tokens) - batch.run_offsets[runs]


def convolved(rows: Tensor, kernels: Tensor, base: Tensor, block_size: int) -> Tensor:
    """Return one side of the dynamic convolution, in float32.

    Shapes:
        rows: ``[blocks * block_size, channels]``.
        kernels: ``[blocks * block_size, taps * groups]``, this side's.
        base: ``[taps, channels]``, this side's.
    """
    taps, channels = base.shape
    blocks = rows.float().view(-1, block_size, channels)
    dynamic = kernels.float().view(*blocks.shape[:2], taps, -1)
    dynamic = dynamic.repeat_interleave(channels // dynamic.shape[-1], dim=-1)
    out = torch.zeros_like(blocks)
    for tap in range(min(taps, block_size)):
        # Slot t takes slot t - tap; what would lie before the block's first slot is zero.
        earlier = functional.pad(blocks[:, : block_size - tap], (0, 0, tap, 0))
        out += (base[tap].float() + dynamic[:, :, tap]) * earlier
    return out.view_as(rows)


def attended_blocks(
    operation: AttendBlock, queries: Tensor, keys: Tensor, values: Tensor, batch: Batch
) -> Tensor:
    """Return the attention of every draft block, each over its own keys alone, in float32.

    Shapes:
        queries: ``[num_tokens, heads, head_dim]``.
        keys: ``[pages, kv_heads, head_dim, 16]``, one layer's.
        values: ``[pages, kv_heads, 16, head_dim]``.
        returns: ``[num_tokens, heads * head_dim]`` float32.
    """
    size = batch.block_size
    starts = batch.positions[::size].tolist()
    blocks = []
    for run, start in enumerate(starts):
        table = batch.page_tables[run, : -(-start // PAGE_SIZE)].long()
        scratch = keys.shape[0] - 1 - run
        own_keys = [*keys[table].unbind(0), keys[scratch]]
        own_values = [*values[table].unbind(0), values[scratch]]
        blocks.append(
            _attend_block(
                queries[run * size : (run + 1) * size].float(),
                _context_and_block(own_keys, -1, start, size),
                _context_and_block(own_values, -2, start, size),
                _visible(operation, start, size),
            )
        )
    return torch.cat(blocks)


def _context_and_block(pages: Sequence[Tensor], dim: int, start: int, size: int) -> Tensor:
    """Return the first ``start`` tokens of all pages but the last, and ``size`` of the last."""
    *context, scratch = pages
    block = scratch.narrow(dim, 0, size)
    if start == 0:
        return block.float()
    return torch.cat([torch.cat(context, dim).narrow(dim, 0, start), block], dim).float()


def _visible(operation: AttendBlock, start: int, size: int) -> Tensor:
    """Return which keys each slot sees, ``[size, start + size]``."""
    key_positions = torch.arange(start + size)
    # How far behind the slot a key lies; under zero for later slots of the block.
    behind = torch.arange(start, start + size)[:, None] - key_positions
    visible = torch.ones_like(behind, dtype=torch.bool)
    if operation.is_causal:
        visible &= behind >= 0
    if operation.window is not None:
        visible &= behind.abs() < operation.window
    return visible


def _attend_block(queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
    """Return one block's attention output.

    Shapes:
        queries: ``[slots, heads, head_dim]`` float32.
        keys: ``[kv_heads, head_dim, length]`` float32.
        values: ``[kv_heads, length, head_dim]`` float32.
        visible: ``[slots, length]``.
        returns: ``[slots, heads * head_dim]``.
    """
    slots, _, head_dim = queries.shape
    grouped = queries.view(slots, keys.shape[0], -1, head_dim).permute(1, 2, 0, 3)
    scores = (grouped * head_dim**-0.5) @ keys[:, None]
    weights = scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)
    return (weights @ values[:, None]).permute(2, 0, 1, 3).flatten(1)

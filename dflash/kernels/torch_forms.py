"""Ways to call torch's matrix products and attention, exact ones and free ones.

A library may round a row otherwise when other rows are computed beside it, or when a sequence is
padded. The exact forms take that freedom away; the free forms take what is fastest.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from dflash.batch import Batch
from dflash.kernels.pages import PAGE_SIZE
from dflash.program import Attend


class LinearForm(Protocol):
    """How rows are multiplied with a weight matrix."""

    @property
    def name(self) -> str:
        """Name for logs and reports."""
        ...

    def prepared(self, matrix: Tensor) -> Tensor:
        """Return what `product` takes, made once from ``[out, in]``."""
        ...

    def product(self, rows: Tensor, matrix: Tensor) -> Tensor:
        """Return ``[rows, out]`` in the rows' type."""
        ...


@dataclass(frozen=True, slots=True)
class FixedRows:
    """Every call has exactly this many rows, the last one padded with zeros.

    Attributes:
        rows_per_call: Rows of each call.
    """

    rows_per_call: int

    @property
    def name(self) -> str:
        """Name for logs and reports."""
        return f"calls of {self.rows_per_call} rows"

    def prepared(self, matrix: Tensor) -> Tensor:
        """Return the matrix as it is."""
        return matrix

    def product(self, rows: Tensor, matrix: Tensor) -> Tensor:
        """Return ``[rows, out]`` in the rows' type."""
        padded = functional.pad(rows, (0, 0, 0, -rows.shape[0] % self.rows_per_call))
        parts = [functional.linear(part, matrix) for part in padded.split(self.rows_per_call)]
        return torch.cat(parts)[: rows.shape[0]]


@dataclass(frozen=True, slots=True)
class PackedRows:
    """The library's fastest: one call over weights it has packed for itself."""

    name: str = "one call, library-packed"

    def prepared(self, matrix: Tensor) -> Tensor:
        """Return the matrix in oneDNN's order for a few rows."""
        return torch.ops.mkldnn._reorder_linear_weight(matrix.contiguous(), 32)

    def product(self, rows: Tensor, matrix: Tensor) -> Tensor:
        """Return ``[rows, out]`` in the rows' type."""
        return torch.ops.mkldnn._linear_pointwise(rows, matrix, None, "none", [], "")


class AttentionForm(Protocol):
    """How queries attend to the pages of their own sequence."""

    @property
    def name(self) -> str:
        """Name for logs and reports."""
        ...

    def attended(
        self, operation: Attend, queries: Tensor, keys: Tensor, values: Tensor, batch: Batch
    ) -> Tensor:
        """Return causal attention of every row over the keys that ``operation`` lets it see.

        Shapes:
            queries: ``[num_tokens, heads, head_dim]``.
            keys: ``[pages, kv_heads, head_dim, 16]``, one layer's.
            values: ``[pages, kv_heads, 16, head_dim]``.
            returns: ``[num_tokens, heads * head_dim]``.
        """
        ...


@dataclass(frozen=True, slots=True)
class OneQuery:
    """One query a call, over exactly its own keys, in float32."""

    name: str = "one query a call"

    def attended(
        self, operation: Attend, queries: Tensor, keys: Tensor, values: Tensor, batch: Batch
    ) -> Tensor:
        """Return ``[num_tokens, heads * head_dim]`` float32."""
        rows = []
        for row, position in enumerate(batch.positions.tolist()):
            table = batch.page_tables[batch.run_of_token[row], : position // PAGE_SIZE + 1]
            own_keys, own_values = _gathered(keys, values, table)
            lowest = int(_lowest(operation, torch.tensor(position)))
            rows.append(
                _attend_one(
                    queries[row].float(),
                    own_keys[..., lowest : position + 1].float(),
                    own_values[:, lowest : position + 1].float(),
                )
            )
        return torch.stack(rows)


@dataclass(frozen=True, slots=True)
class PaddedRuns:
    """The library's fused attention, one call over all runs, padded to the longest."""

    name: str = "fused over padded runs"

    def attended(
        self, operation: Attend, queries: Tensor, keys: Tensor, values: Tensor, batch: Batch
    ) -> Tensor:
        """Return ``[num_tokens, heads * head_dim]`` in the queries' type."""
        counts = batch.run_offsets.diff().long()
        longest = int(counts.max())
        # Row r of a run sits at column r of the padded block; the mask hides the padding.
        columns = torch.arange(batch.num_tokens) - batch.run_offsets[batch.run_of_token.long()]
        rows = batch.run_of_token.long()
        padded = queries.new_zeros(batch.num_runs, longest, *queries.shape[1:])
        padded[rows, columns] = queries
        num_pages = int(batch.positions.max()) // PAGE_SIZE + 1
        tables = batch.page_tables[:, :num_pages].clamp_min(0).long()
        dense_keys = keys[tables].permute(0, 2, 1, 4, 3).flatten(2, 3)
        dense_values = values[tables].transpose(1, 2).flatten(2, 3)
        positions = torch.zeros(batch.num_runs, longest, dtype=torch.int32)
        positions[rows, columns] = batch.positions
        slots = torch.arange(num_pages * PAGE_SIZE)
        lowest = _lowest(operation, positions)
        visible = (slots >= lowest[..., None]) & (slots <= positions[..., None])
        # A masked weight is zero, and zero times what an unwritten slot may hold can be NaN.
        written = (slots >= operation.first) & (slots <= positions.amax(dim=1)[:, None])
        dense_values = dense_values.masked_fill(~written[:, None, :, None], 0.0)
        dense_keys = dense_keys.masked_fill(~written[:, None, :, None], 0.0)
        attended = functional.scaled_dot_product_attention(
            padded.transpose(1, 2),
            dense_keys,
            dense_values,
            attn_mask=visible[:, None],
            enable_gqa=True,
        )
        return attended.transpose(1, 2)[rows, columns].flatten(1)


def _lowest(operation: Attend, positions: Tensor) -> Tensor:
    """Return the lowest position that a row at each position sees."""
    if operation.window is None:
        return torch.full_like(positions, operation.first)
    return (positions - operation.window + 1).clamp_min(operation.first)


def _gathered(keys: Tensor, values: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Return one sequence's ``[kv_heads, head_dim, length]`` keys and its values."""
    pages = table.long()
    return (
        keys[pages].permute(1, 2, 0, 3).flatten(2),
        values[pages].transpose(0, 1).flatten(1, 2),
    )


def _attend_one(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return one token's attention output, flat.

    Shapes:
        query: ``[heads, head_dim]`` float32.
        keys: ``[kv_heads, head_dim, length]`` float32.
        values: ``[kv_heads, length, head_dim]`` float32.
    """
    kv_heads, head_dim, _ = keys.shape
    grouped = query.view(kv_heads, -1, head_dim) * head_dim**-0.5
    return (torch.softmax(grouped @ keys, dim=-1) @ values).flatten()

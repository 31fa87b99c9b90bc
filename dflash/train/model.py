"""The drafter as it is trained: parameters under their published names, blocks by the batch."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from dflash.train.convolution import DynamicConvolution, convolve
from dflash.train.layers import MLP, Attention, Linear, RMSNorm, Rotary, attend
from dflash.train.selector import CandidateSelector
from dflash.train.shape import DrafterShape


@dataclass(frozen=True, slots=True)
class Blocks:
    """Draft blocks of several sequences, packed one sequence after the other.

    Attributes:
        anchor_ids: Token at each block's anchor, ``[blocks]`` int64.
        anchors: Position of each block's anchor, ``[blocks]`` int64.
        per_sequence: How many blocks belong to each sequence.
    """

    anchor_ids: Tensor
    anchors: Tensor
    per_sequence: tuple[int, ...]

    def to(self, device: torch.device) -> "Blocks":
        """Return the same blocks on a device."""
        return replace(self, anchor_ids=self.anchor_ids.to(device), anchors=self.anchors.to(device))


@dataclass(frozen=True, slots=True)
class Context:
    """What a drafter sees of the past: keys and values made from the target's hidden states.

    Attributes:
        layers: For each draft layer, keys and values, each ``[tokens, kv_heads, head_dim]``.
        lengths: How many of the tokens belong to each sequence, from its first on.
    """

    layers: tuple[tuple[Tensor, Tensor], ...]
    lengths: tuple[int, ...]


class DraftLayer(nn.Module):
    """One decoder layer whose past is the target's, given as keys and values."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = MLP(shape)
        self.attention_conv = DynamicConvolution(shape)
        self.mlp_conv = DynamicConvolution(shape)

    def forward(self, x: Tensor, attention: Callable[[Tensor], Tensor], convolving: bool) -> Tensor:
        """Return the layer's output, ``[blocks, slots, hidden]``.

        Args:
            x: Its input, ``[blocks, slots, hidden]``.
            attention: Its attention sublayer over the blocks at hand.
            convolving: Whether the convolutions run: DFlash 2, not v1.
        """
        attention_conv = self.attention_conv if convolving else None
        mlp_conv = self.mlp_conv if convolving else None
        x = x + _around(attention, self.input_layernorm(x), attention_conv)
        return x + _around(self.mlp, self.post_attention_layernorm(x), mlp_conv)


class Drafter(nn.Module):
    """A DFlash 2 drafter; without its convolutions and selector it is a DFlash v1 drafter.

    Parameters are float32; the arithmetic follows the type of the embedding table.
    """

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = Linear(len(shape.target_layer_ids) * shape.hidden_size, shape.hidden_size)
        self.hidden_norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.layers = nn.ModuleList(DraftLayer(shape) for _ in range(shape.num_layers))
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.candidate_selector = CandidateSelector(shape)

    def context(self, features: Tensor, lengths: tuple[int, ...]) -> Context:
        """Return the context made from the target's hidden states.

        Args:
            features: Tapped layers side by side, ``[tokens, taps * hidden]``: each sequence from
                its first token on, one after the other.
            lengths: Tokens of each sequence.
        """
        states = self.hidden_norm(self.fc(features))
        positions = torch.cat([torch.arange(length, device=states.device) for length in lengths])
        rotary = self._rotary(positions, states.dtype)
        layers = tuple(
            layer.self_attn.keys_values(states, rotary) for layer in self._draft_layers()
        )
        return Context(layers, lengths)

    def forward(
        self, context: Context, blocks: Blocks, embedding: Tensor, convolving: bool
    ) -> Tensor:
        """Return the final normalised states of the slots to predict.

        Args:
            context: The past of every sequence that has blocks.
            blocks: What to draft.
            embedding: The target's embedding table, ``[vocab, hidden]``.
            convolving: Whether the convolutions run: DFlash 2, not v1.

        Returns:
            ``[blocks, block_size - 1, hidden]``, slot ``k`` for the token ``k`` after the anchor.
        """
        slots, device = self.shape.block_size, embedding.device
        ids = torch.full((len(blocks.anchors), slots), self.shape.mask_token_id, device=device)
        ids[:, 0] = blocks.anchor_ids
        positions = (blocks.anchors[:, None] + torch.arange(slots, device=device)).flatten()
        rotary = self._rotary(positions, embedding.dtype)
        x = embedding[ids]
        for layer, keys_values in zip(self._draft_layers(), context.layers, strict=True):
            past = _by_sequence(keys_values, context.lengths)

            def attention(y: Tensor, sublayer: Attention = layer.self_attn, past=past) -> Tensor:
                return _attention(sublayer, y, past, blocks, rotary)

            x = layer(x, attention, convolving)
        return self.norm(x[:, 1:])

    def _draft_layers(self) -> list[DraftLayer]:
        return cast("list[DraftLayer]", list(self.layers))

    def _rotary(self, positions: Tensor, dtype: torch.dtype) -> Rotary:
        return Rotary(self.shape.head_dim, self.shape.rope_theta, positions, dtype)


def _around(
    sublayer: Callable[[Tensor], Tensor], x: Tensor, convolution: DynamicConvolution | None
) -> Tensor:
    if convolution is None:
        return sublayer(x)
    before, after = convolution.kernels(x)
    return convolve(sublayer(convolve(x, before)), after)


def _by_sequence(
    keys_values: tuple[Tensor, Tensor], lengths: tuple[int, ...]
) -> list[tuple[Tensor, Tensor]]:
    keys, values = keys_values
    return list(zip(keys.split(lengths), values.split(lengths), strict=True))


def _attention(
    sublayer: Attention,
    x: Tensor,
    past: list[tuple[Tensor, Tensor]],
    blocks: Blocks,
    rotary: Rotary,
) -> Tensor:
    rows = x.flatten(0, 1)
    queries = sublayer.queries(rows, rotary).unflatten(0, x.shape[:2])
    keys, values = (part.unflatten(0, x.shape[:2]) for part in sublayer.keys_values(rows, rotary))
    counts = blocks.per_sequence
    parts = zip(
        queries.split(counts),
        past,
        keys.split(counts),
        values.split(counts),
        blocks.anchors.split(counts),
        strict=True,
    )
    # One sequence at a time: no padding, and its scores stay in the processor's cache.
    mixed = [
        attend(queries, context, (keys, values), anchors, sublayer.window)
        for queries, context, keys, values, anchors in parts
    ]
    return sublayer.o_proj(torch.cat(mixed))

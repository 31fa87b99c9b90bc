"""The MTP head as it is trained: parameters under their published names, chains by the batch."""

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import cast

import torch
from torch import Tensor, nn

from dflash.train.layers import MLP, Attention, Linear, RMSNorm, Rotary
from dflash.train.mtp_shape import MtpShape
from dflash.train.shape import DrafterShape

_FIRST_PAIR = 1


@dataclass(frozen=True, slots=True)
class Past:
    """What the target has computed of several sequences, packed one after the other.

    Attributes:
        token_ids: Each sequence from its first token on, ``[tokens]`` int64.
        states: What the target's head reads at each of them, ``[tokens, hidden]``.
        lengths: Tokens of each sequence.
    """

    token_ids: Tensor
    states: Tensor
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chains:
    """Where chains begin, and the tokens they are fed.

    Attributes:
        token_ids: The anchor's token, then the right one for each link after the first,
            ``[chains, links]`` int64.
        anchors: Position of each chain's anchor, 1 or later, ``[chains]`` int64.
        per_sequence: How many chains belong to each sequence.
    """

    token_ids: Tensor
    anchors: Tensor
    per_sequence: tuple[int, ...]

    def to(self, device: torch.device) -> "Chains":
        """Return the same chains on a device."""
        return replace(self, token_ids=self.token_ids.to(device), anchors=self.anchors.to(device))


class MtpLayer(nn.Module):
    """One decoder layer; what its queries attend to is chosen outside."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = MLP(shape)


class MtpHead(nn.Module):
    """One layer behind the target's last, run once for each token of a chain.

    Parameters are float32; the arithmetic follows the type of the embedding table.
    """

    def __init__(self, shape: MtpShape) -> None:
        super().__init__()
        self.shape = shape
        self.pre_fc_norm_embedding = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.pre_fc_norm_hidden = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.fc = Linear(2 * shape.hidden_size, shape.hidden_size)
        # The layer's parts read only what both shapes have.
        self.layers = nn.ModuleList([MtpLayer(cast("DrafterShape", shape))])
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)

    def forward(self, past: Past, chains: Chains, embedding: Tensor) -> Tensor:
        """Return the final normalised states of every link.

        The first link of a chain reads the state that the target left before the anchor, every
        other link the state of the one before it.

        Args:
            past: Every sequence that has chains.
            chains: What to draft.
            embedding: The target's embedding table, ``[vocab, hidden]``.

        Returns:
            ``[chains, links, hidden]``, link ``k`` for the token ``k`` after the anchor.
        """
        layer = cast("MtpLayer", self.layers[0])
        # A sequence's first token has no state before it: what stands there is never attended to.
        mixed = self._mixed(embedding[past.token_ids], past.states.roll(1, dims=0))
        positions = torch.cat([torch.arange(n, device=mixed.device) for n in past.lengths])
        keys, values = layer.self_attn.keys_values(
            layer.input_layernorm(mixed), self._rotary(positions, mixed.dtype)
        )
        attention = _ChainAttention(
            list(zip(keys.split(past.lengths), values.split(past.lengths), strict=True)),
            chains,
            self.shape.sliding_window,
        )
        x = mixed[_rows(past, chains)]
        states = []
        for link in range(self.shape.draft_length):
            if link:
                x = self._mixed(embedding[chains.token_ids[:, link]], states[-1])
            rotary = self._rotary(chains.anchors + link, x.dtype)
            y = layer.input_layernorm(x)
            if link:
                attention.add(*layer.self_attn.keys_values(y, rotary))
            attended = attention(layer.self_attn.queries(y, rotary), link)
            x = x + layer.self_attn.o_proj(attended)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            states.append(self.norm(x))
        return torch.stack(states, dim=1)

    def _mixed(self, embedded: Tensor, states: Tensor) -> Tensor:
        pair = (self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(states))
        return self.fc(torch.cat(pair, dim=-1))

    def _rotary(self, positions: Tensor, dtype: torch.dtype) -> Rotary:
        return Rotary(self.shape.head_dim, self.shape.rope_theta, positions, dtype)


def _rows(past: Past, chains: Chains) -> Tensor:
    """Return the row of each chain's anchor in the past, ``[chains]``."""
    parts = chains.anchors.split(chains.per_sequence)
    starts = accumulate(past.lengths, initial=0)
    return torch.cat([part + start for part, start in zip(parts, starts, strict=False)])


class _ChainAttention:
    """Attention of chains: over the past up to the anchor, then over the chain's own later links.

    Args:
        past: Keys and values of each sequence, each ``[tokens, kv_heads, head_dim]``.
        chains: Whose links attend.
        window: Keys must be nearer than this many positions.
    """

    def __init__(self, past: list[tuple[Tensor, Tensor]], chains: Chains, window: int) -> None:
        self._past, self._chains, self._window = past, chains, window
        self._own: list[tuple[Tensor, Tensor]] = []

    def add(self, keys: Tensor, values: Tensor) -> None:
        """Let links from here on see another link of their chain, ``[chains, kv_heads, dim]``."""
        self._own.append((keys, values))

    def __call__(self, queries: Tensor, link: int) -> Tensor:
        """Return what a link attends to, ``[chains, heads * head_dim]``.

        Args:
            queries: ``[chains, heads, head_dim]``.
            link: Its number, from 0.
        """
        counts = self._chains.per_sequence
        anchors = self._chains.anchors.split(counts)
        own = [queries.new_empty(len(queries), 0, *self._past[0][0].shape[1:])] * 2
        if self._own:
            own = [torch.stack(parts, dim=1) for parts in zip(*self._own, strict=True)]
        parts = zip(
            queries.split(counts), self._past, *(part.split(counts) for part in own), strict=True
        )
        # One sequence at a time: no padding, and its scores stay in the processor's cache.
        return torch.cat(
            [
                _attend(rows, past, (keys, values), self._hidden(at, len(past[0]), link))
                for (rows, past, keys, values), at in zip(parts, anchors, strict=True)
            ]
        )

    def _hidden(self, anchors: Tensor, length: int, link: int) -> Tensor:
        """Return which tokens of the past a link does not see, ``[chains, length]``."""
        positions = torch.arange(length, device=anchors.device)
        is_near = anchors[:, None] + link - positions < self._window
        return (positions < _FIRST_PAIR) | (positions > anchors[:, None]) | ~is_near


def _attend(
    queries: Tensor, past: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], hidden: Tensor
) -> Tensor:
    """Return what the chains of one sequence attend to, ``[chains, heads * head_dim]``.

    Args:
        queries: ``[chains, heads, head_dim]``.
        past: Keys and values of the sequence, each ``[tokens, kv_heads, head_dim]``.
        own: Keys and values of each chain's own links, each ``[chains, links, kv_heads, dim]``.
        hidden: Which tokens of the past a chain does not see, ``[chains, tokens]``.
    """
    (keys, values), (own_keys, own_values) = past, own
    chains, _, head_dim = queries.shape
    kv_heads, length = keys.shape[1], keys.shape[0]
    # The query heads that share a key head become more rows of the same product.
    rows = (queries * head_dim**-0.5).unflatten(1, (kv_heads, -1)).transpose(0, 1)
    far = (rows.flatten(1, 2) @ keys.permute(1, 2, 0)).view(kv_heads, chains, -1, length)
    near = rows @ own_keys.permute(2, 0, 3, 1)
    # Added rather than filled in: the gradient passes a sum without another pass over memory.
    mask = queries.new_zeros(hidden.shape).masked_fill_(hidden, -torch.inf)[:, None]
    weights = torch.cat([far + mask, near], dim=-1).softmax(dim=-1)
    far, near = weights.split([length, own_keys.shape[1]], dim=-1)
    mixed = (far.flatten(1, 2) @ values.transpose(0, 1)).view(kv_heads, chains, -1, head_dim)
    mixed = mixed + near @ own_values.permute(2, 0, 1, 3)
    return mixed.transpose(0, 1).reshape(chains, -1)

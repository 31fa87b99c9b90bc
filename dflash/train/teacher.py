"""What the target would say at every position, from its last tapped layer on: a few layers only."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from dflash.models.config import ModelConfig
from dflash.train.layers import Rotary


@dataclass(frozen=True, slots=True)
class Teacher:
    """The last layers of a Llama target, run over what its last tapped layer held.

    Attributes:
        config: The target's sizes and constants.
        first_layer: The layer after the last tapped one.
        weights: The target's tensors by name, in the type and place to compute in.
    """

    config: ModelConfig
    first_layer: int
    weights: dict[str, Tensor]

    @torch.no_grad()
    def states(self, tapped: Tensor, lengths: tuple[int, ...]) -> Tensor:
        """Return the normalised states that the target's head reads, ``[tokens, hidden]``.

        Args:
            tapped: Outputs of the last tapped layer, ``[tokens, hidden]``: each sequence from its
                first token on, one after the other.
            lengths: Tokens of each sequence.
        """
        positions = torch.cat([torch.arange(length, device=tapped.device) for length in lengths])
        rotary = Rotary(self.config.head_dim, self.config.rope_theta, positions, tapped.dtype)
        x = tapped
        for layer in range(self.first_layer, self.config.num_layers):
            prefix = f"model.layers.{layer}"
            y = self._normalised(x, f"{prefix}.input_layernorm.weight")
            x = x + self._attention(y, f"{prefix}.self_attn", rotary, lengths)
            y = self._normalised(x, f"{prefix}.post_attention_layernorm.weight")
            x = x + self._mlp(y, f"{prefix}.mlp")
        return self._normalised(x, "model.norm.weight")

    def _normalised(self, x: Tensor, name: str) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.config.rms_norm_eps)
        return (wide * scale).to(x.dtype) * self.weights[name]

    def _attention(
        self, y: Tensor, prefix: str, rotary: Rotary, lengths: tuple[int, ...]
    ) -> Tensor:
        queries, keys, values = (
            (y @ self.weights[f"{prefix}.{part}_proj.weight"].T).unflatten(
                -1, (-1, self.config.head_dim)
            )
            for part in ("q", "k", "v")
        )
        parts = zip(
            rotary.turn(queries).split(lengths),
            rotary.turn(keys).split(lengths),
            values.split(lengths),
            strict=True,
        )
        joined = torch.cat([_causal(*of_sequence) for of_sequence in parts])
        return joined @ self.weights[f"{prefix}.o_proj.weight"].T

    def _mlp(self, y: Tensor, prefix: str) -> Tensor:
        gate = functional.silu(y @ self.weights[f"{prefix}.gate_proj.weight"].T)
        inner = gate * (y @ self.weights[f"{prefix}.up_proj.weight"].T)
        return inner @ self.weights[f"{prefix}.down_proj.weight"].T


def _causal(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    # A batch of one: without that axis the library takes its slow way.
    mixed = functional.scaled_dot_product_attention(
        queries.transpose(0, 1)[None],
        keys.transpose(0, 1)[None],
        values.transpose(0, 1)[None],
        is_causal=True,
        enable_gqa=True,
    )
    return mixed[0].transpose(0, 1).flatten(1)


def teacher_of(config: ModelConfig, weight: Callable[[str], Tensor], last_tap: int) -> Teacher:
    """Return the layers of a target after its last tapped one.

    Args:
        config: The target's sizes and constants.
        weight: Returns a tensor of the target by name, in the type and place to compute in.
        last_tap: The deepest tapped layer.
    """
    parts = (
        *(f"self_attn.{part}_proj" for part in "qkvo"),
        *(f"mlp.{part}_proj" for part in ("gate", "up", "down")),
        "input_layernorm",
        "post_attention_layernorm",
    )
    first = last_tap + 1
    names = [
        f"model.layers.{layer}.{part}.weight"
        for layer in range(first, config.num_layers)
        for part in parts
    ]
    names.append("model.norm.weight")
    return Teacher(config, first, {name: weight(name) for name in names})

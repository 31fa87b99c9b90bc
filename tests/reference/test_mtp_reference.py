"""An MTP head's numbers beside those of a plain computation that follows the published order.

The plain one counts a pair as the published heads do, at the position of its hidden half, knows no
pages, and computes every link over all that is before it anew.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from dflash.drafters.base import ContextRows, DraftRow
from dflash.drafters.checkpoint import drafter_tensor_shapes, open_drafter_checkpoint
from dflash.drafters.load import Lender, load_drafter
from dflash.drafters.mtp import MtpDrafter
from dflash.drafters.mtp_config import mtp_config_from_json
from dflash.drafters.names import LOGITS
from dflash.models.config import model_config_from_json
from dflash.models.registry import program_for
from tests.reference.dflash_formulas import wave
from tests.rigs.both_forms import form_named
from tests.rigs.tiny_checkpoint import TINY_CONFIG

HIDDEN, VOCAB, HEADS, KV_HEADS, DIM, WINDOW, LINKS = 64, 40, 4, 2, 32, 12, 4
EPS, FINAL_EPS, THETA = 1e-6, 1e-5, 5000.0
PAGES, ANCHOR = (4, 1, 3), 7
TARGET = model_config_from_json(TINY_CONFIG | {"vocab_size": VOCAB})
TABLE, FINAL_NORM = wave(101, (VOCAB, HIDDEN)), 1.0 + wave(102, (HIDDEN,), 0.3)
KINDS = {
    "plain": {},
    "window": {"sliding_window": WINDOW},
    "offset norms": {"model_type": "qwen3_next"},
    "reduced": {"draft_vocab_size": 20},
}


def content_of(kind: str) -> dict:
    return {
        "architectures": ["MTPDraftModel"],
        "hidden_size": HIDDEN,
        "intermediate_size": 96,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": DIM,
        "rope_parameters": {"rope_theta": THETA, "rope_type": "default"},
        "max_position_embeddings": 256,
        "rms_norm_eps": EPS,
        "vocab_size": VOCAB,
        "mtp_config": {"draft_length": LINKS},
        **KINDS[kind],
    }


def weights_of(content: dict) -> dict[str, Tensor]:
    shapes = drafter_tensor_shapes(mtp_config_from_json(content))
    offset = 0.0 if "model_type" in content else 1.0
    weights = {}
    for index, name in enumerate(sorted(shapes)):
        shape = shapes[name]
        scale = (2.0 / shape[-1]) ** 0.5
        weights[name] = (
            offset + wave(index, shape, 0.2) if len(shape) == 1 else wave(index, shape, scale)
        )
    if "d2t" in shapes:
        weights["d2t"] = torch.arange(20)  # every other id
    return weights


class Plain:
    """The head over a whole sequence at once, in float64."""

    def __init__(self, content: dict, weights: dict[str, Tensor]) -> None:
        self.weights = {name.removeprefix("mtp."): w.double() for name, w in weights.items()}
        self.offset = 1.0 if "model_type" in content else 0.0
        self.window = content.get("sliding_window", 1 << 30)
        ids = weights["d2t"] + torch.arange(20) if "d2t" in weights else torch.arange(VOCAB)
        self.head = TABLE.double()[ids]

    def norm(self, x: Tensor, name: str) -> Tensor:
        weight = self.weights[f"{name}.weight"] + self.offset
        return weight * x / (x.square().mean(-1, keepdim=True) + EPS).sqrt()

    def product(self, x: Tensor, name: str) -> Tensor:
        return x @ self.weights[f"{name}.weight"].T

    def turned(self, x: Tensor) -> Tensor:
        """Heads of every slot, ``[slots, heads, dim]``, turned to the slot's number."""
        frequencies = THETA ** (-torch.arange(0, DIM, 2).double() / DIM)
        angles = torch.arange(len(x)).double()[:, None, None] * frequencies
        first, second = x.chunk(2, dim=-1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def states(self, token_ids: Tensor, hidden: Tensor) -> Tensor:
        """What the head makes of slots: the hidden of each, and the token after it."""
        pair = [
            self.norm(TABLE.double()[token_ids], "pre_fc_norm_embedding"),
            self.norm(hidden, "pre_fc_norm_hidden"),
        ]
        x = self.product(torch.cat(pair, dim=-1), "fc")
        y = self.norm(x, "layers.0.input_layernorm")
        queries, keys, values = (
            self.product(y, f"layers.0.self_attn.{part}_proj").unflatten(-1, (-1, DIM))
            for part in "qkv"
        )
        queries = self.turned(self.norm(queries, "layers.0.self_attn.q_norm"))
        keys = self.turned(self.norm(keys, "layers.0.self_attn.k_norm"))
        keys, values = (part.repeat_interleave(HEADS // KV_HEADS, 1) for part in (keys, values))
        behind = torch.arange(len(x))[:, None] - torch.arange(len(x))
        scores = torch.einsum("qhd,khd->hqk", queries, keys) / DIM**0.5
        scores = scores.masked_fill((behind < 0) | (behind >= self.window), -torch.inf)
        mixed = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values).flatten(1)
        x = x + self.product(mixed, "layers.0.self_attn.o_proj")
        y = self.norm(x, "layers.0.post_attention_layernorm")
        gate = functional.silu(self.product(y, "layers.0.mlp.gate_proj"))
        inner = gate * self.product(y, "layers.0.mlp.up_proj")
        return self.norm(x + self.product(inner, "layers.0.mlp.down_proj"), "norm")

    def chain(self, token_ids: Tensor, hidden: Tensor, drafts: tuple[int, ...]) -> Tensor:
        """The logits of every link, ``[links, columns]``.

        Args:
            token_ids: The committed tokens.
            hidden: What the target's head reads at each of them.
            drafts: What the links chose.
        """
        tokens, rows = torch.cat([token_ids[1:], torch.tensor([ANCHOR])]), [hidden]
        for link in range(LINKS):
            rows.append(self.states(tokens, torch.cat(rows))[-1:])
            tokens = torch.cat([tokens, torch.tensor(drafts[link : link + 1])])
        return torch.cat(rows[1:]) @ self.head.T


class Recorder:
    """An executor that keeps the logits of the one behind it."""

    def __init__(self, executor, logits: list[Tensor]) -> None:
        self._executor, self._logits = executor, logits

    def run(self, batch):
        outputs = self._executor.run(batch)
        self._logits.append(outputs[LOGITS].clone())
        return outputs


def drafter_of(folder: Path, kind: str, form) -> MtpDrafter:
    content = content_of(kind)
    (folder / "config.json").write_text(json.dumps(content))
    save_file(weights_of(content), folder / "model.safetensors")
    lender = Lender(
        config=TARGET,
        fingerprint="",
        program=program_for(TARGET),
        weight={"model.embed_tokens.weight": TABLE, "model.norm.weight": FINAL_NORM}.__getitem__,
        form=form,
        dtype=torch.float32,
        num_pages=5,
        max_model_len=128,
    )
    drafter = load_drafter(open_drafter_checkpoint(folder), lender, max_runs=2)
    assert isinstance(drafter, MtpDrafter)
    return drafter


@pytest.mark.parametrize("form", ["torch", "compiled"])
@pytest.mark.parametrize("parts", [(1,), (3, 2), (15, 1), (20, 13)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_logits_of_every_link_agree_and_drafts_are_the_best(tmp_path, kind, parts, form):
    drafter, logits = drafter_of(tmp_path, kind, form_named(form)), []
    drafter = replace(
        drafter,
        first_link=Recorder(drafter.first_link, logits),
        next_link=Recorder(drafter.next_link, logits),
    )
    token_ids = (torch.arange(sum(parts)) * 7 + 3) % VOCAB
    last_layer = wave(103, (sum(parts), HIDDEN), 3.0)
    features = torch.cat([TABLE[token_ids], last_layer], dim=1)

    start = 0
    for length in parts:
        drafter.observe(features, [ContextRows(start, PAGES, range(start, start + length))])
        start += length
        logits.clear()
        (drafts,) = drafter.propose([DraftRow(ANCHOR, start, PAGES, LINKS, 0.0, 0, 0)])

    wide = last_layer.double()
    hidden = FINAL_NORM.double() * wide / (wide.square().mean(-1, keepdim=True) + FINAL_EPS).sqrt()
    plain = Plain(content_of(kind), weights_of(content_of(kind)))
    expected = plain.chain(token_ids, hidden, drafts)
    torch.testing.assert_close(torch.cat(logits).double(), expected, atol=2e-5, rtol=1e-5)
    columns = expected.argmax(dim=-1)
    assert list(drafts) == (2 * columns if kind == "reduced" else columns).tolist()

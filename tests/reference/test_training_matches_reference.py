"""The drafter as it is trained gives the reference's numbers too, kept in dflash_reference.json."""

import json
from pathlib import Path

import pytest
import torch

from dflash.train.model import Blocks, Drafter
from dflash.train.shape import DrafterShape
from tests.reference import dflash_formulas as formulas

NUMBERS = json.loads(Path(__file__).with_name("dflash_reference.json").read_text())
SHAPE = DrafterShape(
    hidden_size=formulas.HIDDEN,
    intermediate_size=96,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    rms_norm_eps=1e-6,
    rope_theta=10000.0,
    max_position_embeddings=256,
    block_size=formulas.BLOCK,
    mask_token_id=formulas.MASK,
    target_layer_ids=formulas.TAPS,
    num_target_layers=3,
    vocab_size=formulas.VOCAB,
    selector_rank=8,
)
SECOND_VERSION_ONLY = ("_conv.", "candidate_selector.")


def drafter_of(version: int) -> Drafter:
    drafter = Drafter(SHAPE)
    shapes = {
        name: tuple(tensor.shape)
        for name, tensor in drafter.state_dict().items()
        if version == 2 or not any(part in name for part in SECOND_VERSION_ONLY)
    }
    drafter.load_state_dict(formulas.tensors(shapes), strict=version == 2)
    return drafter


@torch.no_grad()
@pytest.mark.parametrize("case", [case for case in NUMBERS if " full " in case])
def test_logits_agree_to_1e_5(case):
    version, kind, parts = formulas.parts_of(case)
    drafter, length = drafter_of(version), sum(parts)
    scale = formulas.config_json(version, kind)["dflash_config"].get("input_embedding_scale", 1.0)
    context = drafter.context(formulas.features(length), (length,))
    block = Blocks(torch.tensor([formulas.ANCHOR]), torch.tensor([length]), (1,))
    hidden = drafter(context, block, formulas.embedding() * scale, convolving=version == 2)
    expected = torch.tensor(NUMBERS[case]["raw_logits"])
    torch.testing.assert_close(hidden[0] @ formulas.head().T, expected, atol=1e-5, rtol=0)

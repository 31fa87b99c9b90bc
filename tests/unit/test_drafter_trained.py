"""What the trainer exports, the server drafts with: the same numbers from both."""

import pytest
import torch

from dflash.drafters.base import ContextRows, DraftRow
from dflash.drafters.binding import open_bound_drafter
from dflash.drafters.dflash import block_batch
from dflash.drafters.load import Lender, load_drafter
from dflash.drafters.names import LOGITS
from dflash.forms import TorchForm
from dflash.kernels.torch_forms import FixedRows, OneQuery
from dflash.models.config import model_config_from_json
from dflash.models.registry import program_for
from dflash.train.export import export_drafter
from dflash.train.head import draft_head
from dflash.train.model import Blocks, Drafter
from dflash.train.run_state import RunState
from dflash.train.selector import draft
from dflash.train.shape import DrafterShape
from tests.rigs.tiny_checkpoint import TINY_CONFIG, tiny_tensors

TARGET = model_config_from_json(TINY_CONFIG)
SHORTLIST = torch.arange(20) * 2 + 3
SHAPE = DrafterShape(
    hidden_size=64,
    intermediate_size=96,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    rms_norm_eps=1e-5,
    rope_theta=5000.0,
    max_position_embeddings=128,
    block_size=6,
    mask_token_id=5,
    target_layer_ids=(0, 1),
    num_target_layers=2,
    vocab_size=48,
    selector_rank=8,
)
PAGES = (3, 1)


def trained() -> Drafter:
    """Parameters away from their start, in numbers that bfloat16 holds exactly."""
    torch.manual_seed(4)
    drafter = Drafter(SHAPE)
    with torch.no_grad():
        for parameter in drafter.parameters():
            moved = parameter + 0.2 * torch.randn_like(parameter)
            parameter.copy_(moved.bfloat16().float())
    return drafter


def exported(drafter: Drafter, folder, second_version: bool):
    state = RunState(
        shape=SHAPE,
        shortlist=SHORTLIST,
        target_fingerprint="that target",
        seed=0,
        second_version=second_version,
        step=1,
        tokens=1,
        elapsed_s=1.0,
        drafter=dict(drafter.state_dict()),
        optimiser={},
        draw={},
    )
    export_drafter(state, folder)
    return open_bound_drafter(folder, TARGET, "that target")


@pytest.mark.parametrize("second_version", [False, True])
@pytest.mark.parametrize("length", [3, 30])
@torch.no_grad()
def test_an_exported_drafter_drafts_what_the_trainer_saw_it_draft(tmp_path, second_version, length):
    drafter = trained()
    table = tiny_tensors()["model.embed_tokens.weight"].float() * 0.2
    features = torch.randn(length, 128, generator=torch.Generator().manual_seed(1))
    lender = Lender(
        config=TARGET,
        fingerprint="that target",
        program=program_for(TARGET),
        weight={"model.embed_tokens.weight": table}.__getitem__,
        form=TorchForm(FixedRows(8), OneQuery()),
        dtype=torch.float32,
        num_pages=4,
        max_model_len=64,
    )
    checkpoint = exported(drafter, tmp_path / "drafter", second_version)
    served = load_drafter(checkpoint, lender, max_runs=1)

    served.observe(features, [ContextRows(0, PAGES, range(length))])
    asked = [DraftRow(11, length, PAGES, 5, 0.0, 0, 0)]
    (drafted,) = served.propose(asked)
    logits = served.block.run(block_batch(served.config, asked))[LOGITS]

    anchor = torch.tensor([11])
    blocks = Blocks(anchor, torch.tensor([length]), (1,))
    hidden = drafter(drafter.context(features, (length,)), blocks, table, second_version)
    selector = drafter.candidate_selector if second_version else None
    expected = draft(draft_head(table, SHORTLIST), selector, hidden, anchor)
    torch.testing.assert_close(logits, hidden[0] @ table[SHORTLIST].T, atol=1e-4, rtol=0)
    assert list(drafted) == expected[0].tolist()

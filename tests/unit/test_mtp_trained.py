"""What the trainer exports of an MTP head, the server drafts with: the same numbers from both."""

from dataclasses import replace

import pytest
import torch

from dflash.drafters.base import ContextRows, DraftRow
from dflash.drafters.binding import open_bound_drafter
from dflash.drafters.load import Lender, load_drafter
from dflash.drafters.names import LOGITS
from dflash.forms import TorchForm
from dflash.kernels.torch_forms import FixedRows, OneQuery
from dflash.models.config import model_config_from_json
from dflash.models.registry import program_for
from dflash.train.export import export_drafter
from dflash.train.head import draft_head
from dflash.train.mtp_model import Chains, MtpHead, Past
from dflash.train.mtp_shape import MtpShape
from dflash.train.run_state import RunState
from dflash.train.selector import draft
from tests.rigs.tiny_checkpoint import TINY_CONFIG, tiny_tensors

TARGET = model_config_from_json(TINY_CONFIG)
SHORTLIST = torch.arange(20) * 2 + 3
SHAPE = MtpShape(
    hidden_size=64,
    intermediate_size=96,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    rms_norm_eps=1e-5,
    rope_theta=5000.0,
    max_position_embeddings=128,
    draft_length=4,
    target_layer_ids=(0,),
    num_target_layers=2,
    vocab_size=48,
    sliding_window=10,
)
PAGES = (3, 1)


def trained() -> MtpHead:
    """Parameters away from their start, in numbers that bfloat16 holds exactly."""
    torch.manual_seed(4)
    head = MtpHead(SHAPE)
    with torch.no_grad():
        for parameter in head.parameters():
            moved = parameter + 0.2 * torch.randn_like(parameter)
            parameter.copy_(moved.bfloat16().float())
    return head


def served(head: MtpHead, folder, table, logits):
    state = RunState(
        shape=SHAPE,
        shortlist=SHORTLIST,
        target_fingerprint="that target",
        seed=0,
        second_version=False,
        step=1,
        tokens=1,
        elapsed_s=1.0,
        drafter=dict(head.state_dict()),
        optimiser={},
        draw={},
    )
    export_drafter(state, folder)
    lender = Lender(
        config=TARGET,
        fingerprint="that target",
        program=program_for(TARGET),
        weight={
            "model.embed_tokens.weight": table,
            "model.norm.weight": tiny_tensors()["model.norm.weight"].float(),
        }.__getitem__,
        form=TorchForm(FixedRows(8), OneQuery()),
        dtype=torch.float32,
        num_pages=4,
        max_model_len=64,
    )
    drafter = load_drafter(open_bound_drafter(folder, TARGET, "that target"), lender, max_runs=1)

    class Recorder:
        def __init__(self, executor):
            self._executor = executor

        def run(self, batch):
            outputs = self._executor.run(batch)
            logits.append(outputs[LOGITS].clone())
            return outputs

    first, later = Recorder(drafter.first_link), Recorder(drafter.next_link)
    return replace(drafter, first_link=first, next_link=later)


@pytest.mark.parametrize("length", [1, 3, 25])
@torch.no_grad()
def test_an_exported_head_drafts_what_the_trainer_saw_it_draft(tmp_path, length):
    head, logits = trained(), []
    table = tiny_tensors()["model.embed_tokens.weight"].float() * 0.2
    drafter = served(head, tmp_path / "head", table, logits)
    token_ids = (torch.arange(length + 1) * 11 + 4) % 48
    rows = torch.randn(length, 64, generator=torch.Generator().manual_seed(1))

    features = torch.cat([table[token_ids[:length]], rows], dim=1)
    drafter.observe(features, [ContextRows(0, PAGES, range(length))])
    anchor = int(token_ids[-1])
    (drafted,) = drafter.propose([DraftRow(anchor, length, PAGES, 4, 0.0, 0, 0)])

    scale = torch.rsqrt(rows.square().mean(dim=-1, keepdim=True) + TARGET.rms_norm_eps)
    states = rows * scale * tiny_tensors()["model.norm.weight"].float()
    # The anchor is the last token of the past: what the target makes of it is not looked at.
    past = Past(token_ids, torch.cat([states, states[:1]]), (length + 1,))
    fed = torch.tensor([[anchor, *drafted[:-1]]])
    hidden = head(past, Chains(fed, torch.tensor([length]), (1,)), table)
    expected = draft(draft_head(table, SHORTLIST), None, hidden, fed[:, 0])
    torch.testing.assert_close(torch.cat(logits), hidden[0] @ table[SHORTLIST].T, atol=1e-4, rtol=0)
    assert list(drafted) == expected[0].tolist()

"""An MTP head in training: it learns, goes on after a kill, and serves what it exports."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dflash.errors import ConfigError
from dflash.train.export import export_drafter
from dflash.train.mtp_model import Chains, Past
from dflash.train.mtp_trainer import MtpTrainer
from dflash.train.plan import Plan
from dflash.train.run_state import load_state, save_state
from tests.rigs.tiny_drafter import tiny_embedding, tiny_sequence, tiny_target
from tests.rigs.tiny_mtp_head import target_that_norms, tiny_mtp_head

PLAN = Plan(
    seed=1,
    learning_rate=1e-2,
    sequences_per_step=2,
    anchors_per_sequence=8,
    decay=None,
    second_version_at=0.5,
    steps=12,
    minutes=None,
)


def trainer_of(plan: Plan) -> MtpTrainer:
    return MtpTrainer(tiny_mtp_head(), target_that_norms(), plan)


def test_one_sequence_is_learnt_by_heart_and_only_with_the_targets_states() -> None:
    sequence = tiny_sequence(0)
    trainer = trainer_of(replace(PLAN, steps=150, anchors_per_sequence=40))
    before = trainer.serve_again(sequence)
    for _ in range(150):
        trainer.train_step([sequence])
    after = trainer.serve_again(sequence)
    blind = trainer.serve_again(replace(sequence, features=torch.zeros_like(sequence.features)))
    # 33 tokens in chains of 3 and an extra token, each accepted whole.
    assert after.tokens == 33
    assert after.steps == 9
    assert before.acceptance_length < 2 < after.acceptance_length
    assert blind.acceptance_length < 0.7 * after.acceptance_length


def test_a_run_goes_on_after_a_kill_as_if_never_stopped(tmp_path: Path) -> None:
    sequences = [tiny_sequence(seed) for seed in range(5)]
    whole = trainer_of(PLAN)
    for _ in range(12):
        whole.train_step(sequences)

    killed = trainer_of(PLAN)
    for steps in (5, 7):
        for _ in range(steps):
            killed.train_step(sequences)
        save_state(tmp_path, killed.state())
        killed = trainer_of(PLAN)
        state = load_state(tmp_path)
        assert state is not None
        killed.restore(state)

    assert state.shape == killed.head.shape
    for name, tensor in whole.head.state_dict().items():
        assert torch.equal(tensor, killed.head.state_dict()[name]), name
    assert killed.progress == 1.0


def test_without_the_last_layers_states_nothing_is_trained() -> None:
    with pytest.raises(ConfigError, match="leave out --labels-only"):
        MtpTrainer(tiny_mtp_head(), tiny_target(), PLAN)


def past_of(lengths: tuple[int, ...], seed: int = 0) -> Past:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(24, (sum(lengths),), generator=generator)
    return Past(ids, torch.randn(sum(lengths), 32, generator=generator), lengths)


def chains_at(anchors: list[list[int]], past: Past) -> Chains:
    starts = [0, *torch.tensor(past.lengths).cumsum(0).tolist()]
    rows = [start + a for start, some in zip(starts, anchors, strict=False) for a in some]
    ids = torch.stack([past.token_ids[torch.tensor(rows)]] + [torch.tensor(rows) % 24] * 2, dim=1)
    return Chains(
        ids, torch.tensor([a for some in anchors for a in some]), tuple(map(len, anchors))
    )


@torch.no_grad()
def test_a_chain_is_the_same_whatever_else_is_in_the_batch() -> None:
    head, table = tiny_mtp_head(), tiny_embedding()
    past = past_of((9, 12))
    both = head(past, chains_at([[3, 8], [1, 11]], past), table)

    second = Past(past.token_ids[9:], past.states[9:], (12,))
    ids = chains_at([[3, 8], [1, 11]], past).token_ids[2:]
    alone = head(second, Chains(ids, torch.tensor([1, 11]), (2,)), table)

    torch.testing.assert_close(both[2:], alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("window", [512, 5])
@torch.no_grad()
def test_a_chain_sees_pairs_up_to_its_anchor_within_the_window_and_not_the_first_token(
    window: int,
) -> None:
    head, table = tiny_mtp_head(sliding_window=window), tiny_embedding()
    past, anchor = past_of((12,)), 8
    chains = chains_at([[anchor]], past)
    expected = head(past, chains, table)

    seen = []
    for position in range(12):
        states = past.states.clone()
        states[position] += 1.0
        changed = head(replace(past, states=states), chains, table)
        # The state at a position is half of the pair of the next one.
        seen.append((changed != expected).any(dim=-1)[0].tolist())

    for position, links in enumerate(seen):
        pair = position + 1
        is_seen = [pair <= anchor and anchor + link - pair < window for link in range(3)]
        # What a link saw reaches the next ones by its state.
        assert links == [any(is_seen[: link + 1]) for link in range(3)], position
    ids = past.token_ids.clone()
    ids[0] = (ids[0] + 1) % 24
    assert torch.equal(head(replace(past, token_ids=ids), chains, table), expected)


def test_an_exported_head_has_the_trained_tensors_under_the_published_names(tmp_path: Path) -> None:
    ids = torch.tensor([*range(1, 17), 20])
    trainer = MtpTrainer(tiny_mtp_head(), target_that_norms(ids), PLAN)
    for _ in range(2):
        trainer.train_step([tiny_sequence(0)])
    export_drafter(trainer.state(), tmp_path / "head")

    tensors = load_file(tmp_path / "head" / "model.safetensors")
    assert (tensors.pop("d2t") + torch.arange(17)).tolist() == ids.tolist()
    state = trainer.head.state_dict()
    assert tensors.keys() == {f"mtp.{name}" for name in state}
    assert len(tensors) == 15
    for name, tensor in state.items():
        assert torch.equal(tensors[f"mtp.{name}"], tensor.bfloat16()), name
    config = json.loads((tmp_path / "head" / "config.json").read_text())
    assert config["architectures"] == ["MTPDraftModel"]
    assert config["mtp_config"] == {
        "draft_length": 3,
        "target_fingerprint": "fingerprint of the target",
    }
    assert config["train"] == {"steps": 2, "tokens": trainer.tokens, "seed": 1}

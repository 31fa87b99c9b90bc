"""The training loop: it learns, goes on after a kill as if never stopped, and exports its work."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from dflash.errors import CheckpointError
from dflash.train.batches import Draw, make_batch
from dflash.train.export import export_drafter
from dflash.train.held_out import Tally, serve_again, total
from dflash.train.loss import acceptance_weights, position_weights
from dflash.train.plan import Plan
from dflash.train.run_state import load_state, save_state
from dflash.train.sequences import TappedSequence
from dflash.train.shortlist import shortlist
from dflash.train.trainer import Trainer
from tests.rigs.tiny_drafter import tiny_drafter, tiny_sequence, tiny_target

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


def trainer_of(plan: Plan) -> Trainer:
    return Trainer(tiny_drafter(), tiny_target(), plan)


def served(trainer: Trainer, sequence: TappedSequence) -> Tally:
    return serve_again(trainer.drafter, tiny_target(), sequence, trainer.second_version)


def test_one_sequence_is_learnt_by_heart_and_only_with_the_targets_states() -> None:
    sequence = tiny_sequence(0)
    trainer = trainer_of(replace(PLAN, steps=150, anchors_per_sequence=40))
    before = served(trainer, sequence)
    for _ in range(150):
        trainer.train_step([sequence])
    after = served(trainer, sequence)
    blind = served(trainer, replace(sequence, features=torch.zeros_like(sequence.features)))
    # 33 tokens in blocks of 4, each accepted whole.
    assert after.tokens == 33
    assert after.steps == 9
    assert before.acceptance_length < 2 < after.acceptance_length
    assert blind.acceptance_length < 0.7 * after.acceptance_length


def test_a_run_goes_on_after_a_kill_as_if_never_stopped(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        sequences = [tiny_sequence(seed) for seed in range(5)]
        whole = trainer_of(PLAN)
        for _ in range(12):
            whole.train_step(sequences)

        killed = trainer_of(PLAN)
        # Kills before and after the second version's parts take part.
        for steps in (4, 5, 3):
            for _ in range(steps):
                killed.train_step(sequences)
            save_state(tmp_path, killed.state())
            killed = trainer_of(PLAN)
            killed.restore(load_state(tmp_path))
    finally:
        torch.set_num_threads(threads)
    for name, tensor in whole.drafter.state_dict().items():
        assert torch.equal(tensor, killed.drafter.state_dict()[name]), name
    assert killed.progress == 1.0


def test_the_second_version_waits_for_its_share_of_the_run() -> None:
    trainer = trainer_of(PLAN)
    start = {name: tensor.clone() for name, tensor in trainer.drafter.state_dict().items()}

    def moved() -> set[str]:
        return {
            name.split(".")[0] if "layers" not in name else name.split(".")[2]
            for name, tensor in trainer.drafter.state_dict().items()
            if not torch.equal(tensor, start[name])
        }

    for _ in range(6):
        trainer.train_step([tiny_sequence(0)])
    assert not moved() & {"attention_conv", "mlp_conv", "candidate_selector"}
    for _ in range(6):
        trainer.train_step([tiny_sequence(0)])
    assert moved() >= {"attention_conv", "mlp_conv", "candidate_selector", "fc"}


def test_time_bounds_a_run_as_steps_do() -> None:
    now = iter(range(0, 1000, 15))
    trainer = Trainer(
        tiny_drafter(),
        tiny_target(),
        replace(PLAN, steps=None, minutes=1.0),
        clock=lambda: float(next(now)),
    )
    shares = []
    while trainer.progress < 1.0:
        trainer.train_step([tiny_sequence(0)])
        shares.append(trainer.progress)
    assert shares == [0.25, 0.5, 0.75, 1.0]


def test_the_rate_rises_then_falls() -> None:
    rates = [PLAN.learning_rate_at(progress / 100) for progress in range(101)]
    assert max(rates) == pytest.approx(PLAN.learning_rate, rel=1e-3)
    assert rates.index(max(rates)) == 4
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert 0 < rates[-1] < 0.05 * PLAN.learning_rate


def test_a_round_draws_every_sequence_once_and_takes_in_arrivals() -> None:
    draw = Draw(seed=0)
    first = [draw.next(3, 6) for _ in range(2)]
    assert sorted([*first[0], *first[1]]) == [0, 1, 2, 3, 4, 5]
    second = draw.next(3, 6)
    late = [*second, *draw.next(5, 8)]
    assert sorted(late) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_labels_end_with_the_sequence_and_at_the_first_id_off_the_shortlist() -> None:
    sequence = replace(
        tiny_sequence(0, length=9, prompt_length=2),
        token_ids=torch.tensor([1, 2, 3, 4, 5, 9, 4, 3, 2], dtype=torch.int32),
    )
    predictable = torch.arange(10) < 6
    batch = make_batch([sequence], predictable, 4, 99, torch.Generator().manual_seed(0))
    assert batch.blocks.anchors.tolist() == [2, 3, 4, 5, 6, 7]
    assert batch.blocks.anchor_ids.tolist() == [3, 4, 5, 9, 4, 3]
    assert batch.labels.known.int().tolist() == [
        [1, 1, 0],
        [1, 0, 0],
        [0, 0, 0],
        [1, 1, 1],
        [1, 1, 0],
        [1, 0, 0],
    ]
    assert batch.labels.ids[3].tolist() == [4, 3, 2]
    assert batch.labels.previous[3].tolist() == [9, 4, 3]
    # The target chose each label at the token before it.
    assert batch.labels.rows[3].tolist() == [5, 6, 7]


@torch.no_grad()
def test_the_rows_that_fill_a_context_up_change_nothing_a_block_sees() -> None:
    sequences = [tiny_sequence(0, length=9), tiny_sequence(1, length=13)]
    drafter, target = tiny_drafter(), tiny_target()
    batch = make_batch(sequences, target.head.rows >= 0, 4, 99, torch.Generator().manual_seed(0))
    assert batch.lengths == (64, 64)
    bare = torch.cat([sequence.features[:-1] for sequence in sequences])
    filled, plain = (
        drafter(drafter.context(features, lengths), batch.blocks, target.embedding, True)
        for features, lengths in ((batch.features, batch.lengths), (bare, (8, 12)))
    )
    torch.testing.assert_close(filled, plain)


def test_slots_weigh_less_the_later_or_the_less_likely_to_be_reached() -> None:
    known = torch.tensor([[True, True, True], [True, False, False]])
    fixed = position_weights(known, 4.0)
    assert fixed[0].tolist() == pytest.approx([1.0, math.exp(-0.25), math.exp(-0.5)])
    assert fixed[1].tolist() == [1.0, 0.0, 0.0]
    weights = acceptance_weights(torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]), known)
    # q is 1, 1/2, 1: products 1, 1/2, 1/2; each slot sums them from its own on.
    assert weights[0].tolist() == [2.0, 1.0, 0.5]
    assert weights[1].tolist() == [0.5, 0.0, 0.0]


def test_the_shortlist_keeps_what_is_common_and_what_may_not_be_missed() -> None:
    counts = torch.tensor([0, 5, 0, 9, 1, 0])
    assert shortlist(counts, torch.tensor([5]), 3).tolist() == [1, 3, 5]
    # What was never seen fills up from the lowest id on.
    assert shortlist(counts, torch.tensor([5]), 5).tolist() == [0, 1, 3, 4, 5]


def test_tallies_add_up() -> None:
    both = total([Tally(2, 5, (2, 1), (1, 1)), Tally(1, 1, (1, 0), (0, 0))])
    assert both == Tally(3, 6, (3, 1), (1, 1))
    assert both.acceptance_length == 2.0


@pytest.fixture
def trained() -> Trainer:
    trainer = trainer_of(PLAN)
    for _ in range(12):
        trainer.train_step([tiny_sequence(0)])
    return trainer


def exported(trainer: Trainer, folder: Path) -> tuple[dict[str, Tensor], dict]:
    export_drafter(trainer.state(), folder)
    config = json.loads((folder / "config.json").read_text())
    return load_file(folder / "model.safetensors"), config


def test_an_exported_drafter_has_the_trained_tensors(trained: Trainer, tmp_path: Path) -> None:
    (tmp_path / "drafter").mkdir()
    tensors, config = exported(trained, tmp_path / "drafter")
    assert tensors.pop("d2t").tolist() == [0] * 24
    state = trained.drafter.state_dict()
    assert tensors.keys() == state.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, state[name].bfloat16()), name
    assert config["architectures"] == ["DFlash2DraftModel"]
    assert config["dflash_config"]["target_fingerprint"] == "fingerprint of the target"
    assert config["train"] == {"steps": 12, "tokens": trained.tokens, "seed": 1}


def test_a_first_version_is_exported_without_the_parts_of_the_second(tmp_path: Path) -> None:
    target = tiny_target(torch.tensor([2, 3, 7]))
    trainer = Trainer(tiny_drafter(), target, PLAN)
    tensors, config = exported(trainer, tmp_path / "drafter")
    assert tensors.pop("d2t").tolist() == [2, 2, 5]
    assert len(tensors) == 11 * 2 + 3
    assert config["architectures"] == ["DFlashDraftModel"]
    assert config["draft_vocab_size"] == 3
    assert "selector_rank" not in config["dflash_config"]


def test_a_damaged_state_is_named(trained: Trainer, tmp_path: Path) -> None:
    assert load_state(tmp_path) is None
    save_state(tmp_path, trained.state())
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="remove it to start the run anew"):
        load_state(tmp_path)


def test_a_longer_run_does_not_go_back_to_the_first_version() -> None:
    trainer = trainer_of(PLAN)
    for _ in range(7):
        trainer.train_step([tiny_sequence(0)])
    longer = trainer_of(replace(PLAN, steps=100))
    longer.restore(trainer.state())
    assert longer.progress < PLAN.second_version_at
    assert longer.second_version

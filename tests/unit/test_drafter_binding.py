"""A drafter belongs to one target; any other is refused with the reason."""

from dataclasses import replace

import pytest

from benchmarks.rigs.tiny_drafter import TinyDrafter, tiny_drafter_json, write_tiny_drafter
from dflash.drafters.binding import open_bound_drafter, why_inactive
from dflash.drafters.config import dflash_config_from_json
from dflash.errors import CheckpointError
from dflash.models.config import model_config_from_json
from tests.rigs.tiny_checkpoint import TINY_CONFIG

TARGET = model_config_from_json(TINY_CONFIG)
DRAFTER = dflash_config_from_json(tiny_drafter_json(TinyDrafter(), TARGET))


def test_a_drafter_made_for_the_target_is_active():
    assert why_inactive(DRAFTER, TARGET, "abc") is None


def test_a_fingerprint_binds_to_one_checkpoint():
    bound = replace(DRAFTER, target_fingerprint="abc")

    assert why_inactive(bound, TARGET, "abc") is None
    assert "target_fingerprint abc, this target's is def" in (
        why_inactive(bound, TARGET, "def") or ""
    )


def test_a_drafter_that_does_not_say_how_deep_its_target_is_may_draft():
    assert why_inactive(replace(DRAFTER, num_target_layers=None), TARGET, "") is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": 128}, ["hidden_size 128", "64"]),
        ({"vocab_size": 64}, ["vocab_size 64", "48"]),
        ({"num_target_layers": 30}, ["num_target_layers 30", "2"]),
        ({"target_layer_ids": (0, 2)}, ["target_layer_ids", "layer 2", "0 to 1"]),
        ({"mask_token_id": 48, "vocab_size": 64}, ["mask_token_id", "48", "0 to 47"]),
    ],
)
def test_what_does_not_fit_is_said_with_both_values(change, words):
    reason = why_inactive(replace(DRAFTER, **change), TARGET, "abc")

    assert reason is not None
    assert all(word in reason for word in words), reason


def test_a_wrong_pairing_is_refused_at_load_with_the_sentence(tmp_path):
    folder = write_tiny_drafter(tmp_path, TinyDrafter(), TARGET)
    other = model_config_from_json(TINY_CONFIG | {"vocab_size": 64})

    with pytest.raises(CheckpointError, match="vocab_size 48, this target's is 64") as refusal:
        open_bound_drafter(folder, other, "")
    assert str(folder) in str(refusal.value)

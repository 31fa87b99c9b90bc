"""What the speculation benchmark measures: a target, its drafter, and a head to price beside it."""

import pytest

from benchmarks.rigs.tiny_drafter import TinyDrafter, write_tiny
from benchmarks.rigs.tiny_mtp import TinyMtp
from benchmarks.speculation import pair
from dflash.load import load_models
from tests.rigs.drafter_config import TARGET, drafter_config, with_drafter


@pytest.mark.parametrize(
    ("kind", "is_priced"),
    [
        (TinyDrafter(draft_vocab_size=24), True),
        (TinyDrafter(), False),
        (TinyMtp(draft_vocab_size=24), False),
    ],
)
def test_a_whole_head_is_priced_beside_a_reduced_one_of_a_block_drafter(
    tmp_path, monkeypatch, kind, is_priced
):
    config = drafter_config(tmp_path)
    folder = str(tmp_path / "other")
    write_tiny(tmp_path / "other", kind, TARGET)
    monkeypatch.setattr(pair, "load_models", lambda _: load_models(with_drafter(config, folder)))

    found = pair.load_pair("float32", 1, folder)

    assert (found.full_head_drafter is not None) == is_priced

"""What the speculation benchmark measures: a target, its drafters, and a head to price beside."""

import argparse

import pytest

from benchmarks.rigs.tiny_drafter import TinyDrafter, write_tiny
from benchmarks.rigs.tiny_mtp import TinyMtp
from benchmarks.speculation import lineup
from benchmarks.speculation.lineup import (
    DrafterAbsentError,
    Lineup,
    Wanted,
    drafter_names,
    full_head_drafter,
    load_lineup,
)
from dflash.load import load_models
from tests.rigs.drafter_config import TARGET, drafter_config, with_drafter


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Write drafters for a tiny target, and load a lineup of them."""
    config = drafter_config(tmp_path)
    monkeypatch.setattr(
        lineup,
        "load_models",
        lambda asked: load_models(with_drafter(config, asked.speculation.drafter)),
    )

    def loaded(*kinds: TinyDrafter | TinyMtp, **wanted) -> Lineup:
        folders = [tmp_path / f"drafter-{index}" for index, _ in enumerate(kinds)]
        for folder, kind in zip(folders, kinds, strict=True):
            write_tiny(folder, kind, TARGET)
        return load_lineup(Wanted("float32", 1, tuple(map(str, folders)), **wanted))

    return loaded


@pytest.mark.parametrize(
    ("kind", "is_priced"),
    [
        (TinyDrafter(draft_vocab_size=24), True),
        (TinyDrafter(), False),
        (TinyMtp(draft_vocab_size=24), False),
    ],
)
def test_a_whole_head_is_priced_beside_a_reduced_one_of_a_block_drafter(load, kind, is_priced):
    assert (full_head_drafter(load(kind)) is not None) == is_priced


def test_a_head_is_priced_only_where_its_drafter_is_measured(load):
    kinds = (TinyDrafter(draft_vocab_size=24), TinyMtp(draft_vocab_size=24))

    assert full_head_drafter(load(*kinds, names=("mtp", "dflash2"))) is not None
    assert full_head_drafter(load(*kinds, names=("mtp",))) is None


def test_those_that_are_named_are_measured_in_their_order_and_made_up_where_they_may_be(load):
    kinds = (TinyDrafter(), TinyMtp())
    every = load(*kinds)
    named = load(*kinds, names=("mtp", "dflash"), may_make_up=True)

    assert [each.facts.name for each in every.drafters] == ["dflash2", "mtp"]
    assert [each.facts.name for each in named.drafters] == ["mtp", "dflash"]
    assert (every.made_up, named.made_up) == ((), ("dflash",))


def test_one_that_is_not_there_and_may_not_be_made_up_is_said_by_its_name(load):
    with pytest.raises(DrafterAbsentError, match="mtp is not shipped; name one with --drafter"):
        load(TinyDrafter(), names=("dflash2", "mtp"))


def test_names_of_drafters_are_a_list_of_ours():
    assert drafter_names("dflash2,mtp") == ("dflash2", "mtp")
    with pytest.raises(argparse.ArgumentTypeError, match="'mpt' is no drafter"):
        drafter_names("mpt")

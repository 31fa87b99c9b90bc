"""docs/training.md says what the trainer's prompts are made of."""

import re
from pathlib import Path

from dflash.train.prompts.mix import KINDS
from dflash.train.prompts.passages import LICENCES

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")


def test_every_kind_of_prompt_has_its_row_with_its_share():
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", PAGE, re.MULTILINE)
    assert {kind: int(share) for kind, share in rows} == {
        kind: share for kind, (_, share) in KINDS.items()
    }


def test_every_package_whose_text_is_used_is_named_with_its_licence():
    rows = re.findall(r"^\|[^|]*\| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    named = {
        package: licence
        for packages, licence in rows
        for package in re.findall(r"`(\w+)`", packages)
    }
    assert {package: named.get(package) for package in LICENCES} == LICENCES

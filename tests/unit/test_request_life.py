import pkgutil
import re
from pathlib import Path

import pytest

from dflash.stats import WhyPlain

PAGE = Path(__file__).parents[2] / "docs" / "request-life.md"
NAMES = sorted(set(re.findall(r"`((?:dflash|deployments)(?:\.\w+)+)`", PAGE.read_text())))


def test_the_page_names_both_rooms():
    assert {name.split(".")[0] for name in NAMES} == {"dflash", "deployments"}


@pytest.mark.parametrize("name", NAMES)
def test_every_name_on_the_page_of_a_requests_life_can_be_imported(name: str):
    assert pkgutil.resolve_name(name) is not None


def test_every_reason_to_decode_plainly_has_its_row_on_the_page():
    rows = re.findall(r"^\| `([a-z_]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert rows == [reason.value for reason in WhyPlain]

import pkgutil
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "request-life.md"
NAMES = sorted(set(re.findall(r"`((?:dflash|deployments)(?:\.\w+)+)`", PAGE.read_text())))


def test_the_page_names_both_rooms():
    assert {name.split(".")[0] for name in NAMES} == {"dflash", "deployments"}


@pytest.mark.parametrize("name", NAMES)
def test_every_name_on_the_page_of_a_requests_life_can_be_imported(name: str):
    assert pkgutil.resolve_name(name) is not None

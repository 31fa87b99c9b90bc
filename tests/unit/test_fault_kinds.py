"""Every test that docs/faults.md names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_named_test_exists_and_each_kind_names_some():
    rows = [
        line
        for line in (ROOT / "docs" / "faults.md").read_text(encoding="utf-8").splitlines()
        if re.match(r"\| [A-Z]+[A-Z-]* \| ", line)
    ]
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
    }
    assert len(rows) == 17
    for row in rows:
        named = set(re.findall(r"`(test_\w+)`", row))
        assert len(named) >= 4
        assert named <= defined

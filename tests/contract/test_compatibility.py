"""The page of what each parameter does is what the code does."""

from pathlib import Path

from deployments.openai import compatibility
from deployments.openai.compatibility import PROBES, render_documentation, served_fields

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def test_the_page_is_what_the_code_says():
    assert PAGE.read_text(encoding="utf-8") == render_documentation()


def test_every_parameter_is_described_and_has_a_request_that_uses_it():
    fields = served_fields()
    assert set(PROBES) == set(fields)
    assert [name for name, what in fields.items() if not what] == []
    assert [
        name for name, probes in PROBES.items() if any(name not in each for each in probes)
    ] == []


def row_of(start: str) -> list[str]:
    (row,) = [
        line for line in render_documentation().splitlines() if line.startswith(f"| `{start}")
    ]
    return [cell.strip() for cell in row.split("|")[2:8]]


def test_a_cell_says_what_a_request_would_be_told():
    assert row_of('"n": 8') == ["yes"] * 6
    assert row_of('"stream_options"') == ["refused", "refused", *["yes"] * 4]
    assert row_of('"messages"') == ["yes", "no effect", *["yes"] * 4]
    assert row_of('"best_of": 2`') == ["refused"] * 6
    assert row_of('"speculation": {"mode": "off"}') == ["yes"] * 3 + ["plain", "plain", "yes"]


def test_the_page_would_change_with_the_code(monkeypatch):
    without = {name: why for name, why in compatibility.REFUSED.items() if name != "suffix"}
    monkeypatch.setattr(compatibility, "REFUSED", without)
    assert PAGE.read_text(encoding="utf-8") != render_documentation()

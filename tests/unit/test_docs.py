import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from deployments.policy_status import PolicyStatus

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
ANCHOR = re.compile(r"\[[^\]]*\]\(([^)#\s]*)#([^)\s]+)\)")
HEADINGS = ("## Context", "## Choice", "## What we gave up")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_between_pages_leads_somewhere(page: Path):
    targets = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_to_a_heading_leads_to_one(page: Path):
    links = [link for link in ANCHOR.findall(page.read_text()) if "://" not in link[0]]
    wrong = [
        f"{target}#{anchor}"
        for target, anchor in links
        if anchor not in anchors_of(page.parent / target if target else page)
    ]
    assert wrong == []


def anchors_of(page: Path) -> set[str]:
    """Return what a link to a heading of a page may name."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_the_readme_shows_the_policy_as_readyz_does():
    shown = re.search(
        r"```json\n(\"policy\": .+?)\n```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert shown is not None
    policy = json.loads("{" + shown[1] + "}")["policy"]
    assert list(policy) == [field.name for field in fields(PolicyStatus)]


def test_every_make_verb_in_the_pages_is_a_target():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pattern = re.compile(r"(?:`|^)make ([a-z]+)", re.MULTILINE)
    named = {verb for page in PAGES for verb in pattern.findall(page.read_text())}
    assert {"serve", "test"} <= named <= targets


def test_every_module_that_a_page_tells_people_to_run_exists():
    pattern = re.compile(r"python -m ([a-z_.]+)")
    named = {module for page in PAGES for module in pattern.findall(page.read_text())}
    paths = {name: ROOT / name.replace(".", "/") for name in sorted(named)}
    missing = [
        name
        for name, path in paths.items()
        if not path.with_suffix(".py").exists() and not (path / "__main__.py").exists()
    ]
    assert named
    assert missing == []


def test_every_variable_in_the_readme_is_read_by_the_code_or_is_rays():
    pattern = re.compile(r"^\| `([A-Z_]+)(?:=1)?`", re.MULTILINE)
    named = pattern.findall((ROOT / "README.md").read_text())
    readers = [*(ROOT / "dflash").rglob("*.py"), ROOT / "Makefile"]
    source = "".join(path.read_text() for path in readers)
    assert "DFLASH_CACHE_DIR" in named
    assert [name for name in named if not name.startswith("RAY_") and name not in source] == []


def test_every_decision_has_its_context_its_choice_and_its_cost():
    decisions = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [int(path.name[:4]) for path in decisions] == list(range(1, len(decisions) + 1))
    for path in decisions:
        text = path.read_text()
        assert [text.find(heading) > 0 for heading in HEADINGS] == [True] * 3, path.name

"""`docs/policy.md` has every reason, in the words of the code."""

from pathlib import Path

import pytest

from deployments.operators.words import WORDS
from policy.reasons import Reason

PAGE = (Path(__file__).parents[2] / "docs" / "policy.md").read_text()


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_an_anchor_its_meaning_and_what_to_do(reason: Reason):
    words = WORDS[reason]
    assert f"### {reason}\n\n{words.meaning} *What to do:* {words.cure}\n" in PAGE


def test_no_other_reason_has_one():
    headings = {line[4:] for line in PAGE.splitlines() if line.startswith("### ")}
    assert headings == set(Reason)

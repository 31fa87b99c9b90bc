"""What a replica keeps of its decisions, and that it can be read and made again."""

import pytest

from deployments import decision_record
from deployments.decision_record import DecisionRecord, Made
from deployments.line_file import LineFile
from policy.decision import first_decision
from policy.limits import Limits
from policy.log import entries_from
from policy.recording import replay
from tests.rigs.policy_world import World, terms


@pytest.fixture(scope="module")
def made() -> list[Made]:
    """Decisions under two terms, as a replica makes them."""
    here = World(terms(), {"dflash2": 0.9, "mtp": 0.8})
    here.run(5.0, rows=2)
    stricter = terms(Limits({"dflash2": 0, "mtp": 0}))
    bounds, before = [here.terms] * len(here.decisions), here.terms
    here.terms = stricter
    here.run(2.0, rows=2)
    bounds += [stricter] * (len(here.decisions) - len(bounds))
    lasts = [first_decision(before, 0.0), *here.decisions]
    return [
        Made(last, signals, bound, decision)
        for last, signals, bound, decision in zip(
            lasts, here.signals, bounds, here.decisions, strict=False
        )
    ]


def kept(folder, made, **options) -> DecisionRecord:
    record = DecisionRecord("a", folder, clock=lambda: 0.0, **options)
    record.start()
    for each in made:
        record.note(each)
    record.stop()
    return record


def lines(path) -> list[str]:
    return path.read_text().splitlines(keepends=True)


def test_the_files_hold_the_changes_and_make_every_decision_again(tmp_path, made):
    record = kept(tmp_path, made, keeps_signals=True)
    header, entries = entries_from(lines(tmp_path / "decisions-a.jsonl"))
    assert header.replica == "a"
    assert tuple(entries) == record.entries()
    assert 3 < len(entries) < len(made) / 3
    again = list(replay(lines(tmp_path / "signals-a.jsonl")))
    assert [each.decision for each in again] == [each.decision for each in made]
    assert all(each.is_same for each in again)
    assert record.num_lost == 0


def test_a_decision_that_is_missing_begins_a_new_run_and_the_rest_replays(tmp_path, made):
    kept(tmp_path, [*made[:10], *made[13:]], keeps_signals=True)
    again = list(replay(lines(tmp_path / "signals-a.jsonl")))
    assert len(again) == len(made) - 3
    assert all(each.is_same for each in again)


def test_each_file_can_be_read_without_the_one_before(tmp_path, made, monkeypatch):
    def small(path, text_of):
        return LineFile(path, text_of, 1 << 18)

    monkeypatch.setattr(decision_record, "LineFile", small)
    record = kept(tmp_path, made * 4, keeps_signals=True)
    assert record.num_lost == 0
    for name in ("signals-a.1.jsonl", "signals-a.jsonl"):
        again = list(replay(lines(tmp_path / name)))
        assert len(again) > 10
        assert all(each.is_same for each in again)


def test_without_a_folder_the_newest_changes_are_kept_and_nothing_is_written(made, tmp_path):
    record = kept(None, made)
    assert record.entries()
    assert record.num_lost == 0
    assert not list(tmp_path.iterdir())


def test_signals_are_kept_where_they_are_asked_for_and_not_else(made, tmp_path):
    kept(tmp_path, made)
    assert [path.name for path in tmp_path.iterdir()] == ["decisions-a.jsonl"]


def test_a_decision_that_cannot_be_noted_is_counted_and_raises_nothing(made, tmp_path, caplog):
    record = kept(tmp_path, [*made[:3], Made(None, None, None, None), *made[3:]])
    assert record.num_lost == 1
    assert "cannot be noted" in caplog.text
    assert record.entries()

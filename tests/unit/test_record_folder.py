"""Files of replicas that are long gone make room for those of new ones."""

import os
from pathlib import Path

from deployments.decision_record import DecisionRecord
from deployments.record_folder import MOST_REPLICAS, forget_oldest


def wrote(folder: Path, replica: str, at_s: int) -> list[str]:
    kinds = ("decisions", "signals")
    names = [f"{kind}-{replica}{part}.jsonl" for kind in kinds for part in ("", ".1")]
    for name in names:
        (folder / name).write_text("{}")
        os.utime(folder / name, (at_s, at_s))
    return names


def kept(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_newest_replicas_stay_with_all_their_files_and_nothing_else_is_touched(tmp_path):
    files = [wrote(tmp_path, f"app#Engine#{index}", 1000 + index) for index in range(5)]
    (tmp_path / "notes.jsonl").write_text("")
    # The oldest has a part that was written last, so it is in use.
    os.utime(tmp_path / files[0][3], (9000, 9000))
    forget_oldest(tmp_path, "new", most=3)
    assert kept(tmp_path) == {*files[0], *files[4], "notes.jsonl"}


def test_a_replica_that_comes_again_keeps_its_own(tmp_path):
    files = [wrote(tmp_path, f"r{index}", 1000 + index) for index in range(3)]
    forget_oldest(tmp_path, "r0", most=2)
    assert kept(tmp_path) == {*files[0], *files[2]}


def test_a_record_that_begins_makes_room(tmp_path):
    for index in range(MOST_REPLICAS + 3):
        wrote(tmp_path, f"r{index}", 1000 + index)
    record = DecisionRecord("new", tmp_path)
    record.start()
    record.stop()
    assert len(kept(tmp_path)) == 4 * (MOST_REPLICAS - 1)


def test_a_folder_that_is_not_there_is_none_of_its_business(tmp_path):
    forget_oldest(tmp_path / "nothing", "new")
    assert not (tmp_path / "nothing").exists()

"""The task files of the speculation benchmark: their names, and samples of them."""

from pathlib import Path

from benchmarks.speculation.tasks import read_tasks, sample


def test_task_files_are_named_as_figures_are(tmp_path: Path):
    (tmp_path / "mt-bench.jsonl").write_text('{"turns": ["a", "b"]}\n{"turns": ["c"]}\n')
    assert read_tasks(tmp_path) == {"mt_bench": [("a", "b"), ("c",)]}


def test_a_sample_is_the_same_each_time_and_never_larger_than_what_there_is():
    all_of = [(str(number),) for number in range(50)]
    assert sample(all_of, 5, seed=1) == sample(all_of, 5, seed=1)
    assert len(set(sample(all_of, 5, seed=1))) == 5
    assert len(sample(all_of[:3], 5, seed=1)) == 3

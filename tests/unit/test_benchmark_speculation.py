"""The speculation benchmark's arithmetic: speeds by round, acceptance by position, task files."""

from pathlib import Path

import pytest

from benchmarks.speculation.arms import PLAIN, PLAIN_AGAIN, Arm, grid_arms, in_turn
from benchmarks.speculation.summary import (
    Grid,
    acceptance_figures,
    acceptance_table,
    draft_over_plain_step,
    grid_figures,
    grid_tables,
)
from benchmarks.speculation.tasks import TaskFileError, read_tasks, sample
from benchmarks.speculation.visits import (
    Acceptance,
    Load,
    Visit,
    acceptance_of,
    ids_that_differ,
)
from dflash.plan import ContextMode
from dflash.stats import Grades, StepStats

AT_1 = Load(concurrency=1, num_requests=2, max_tokens=4, temperature=0.0)
AT_8_WARM = Load(concurrency=8, num_requests=8, max_tokens=4, temperature=1.0)
IDS = ((1, 2, 3, 4), (5, 6))


def visit(
    arm: str,
    tok_s: float,
    round_index: int = 0,
    load: Load = AT_1,
    ids: tuple[tuple[int, ...], ...] = IDS,
    steps: tuple[float, ...] = (),
    drafts: tuple[float, ...] = (),
) -> Visit:
    seconds = sum(map(len, ids)) / tok_s
    return Visit(load, arm, round_index, seconds, ids, Acceptance(), steps, drafts)


def round_of(index: int, slow_down: float, load: Load = AT_1) -> list[Visit]:
    """A round on a machine that runs at a fraction of its speed."""
    speeds = {PLAIN: 90.0, "1 drafts": 140.0, "7 drafts": 250.0, PLAIN_AGAIN: 110.0}
    return [visit(arm, tok_s * slow_down, index, load) for arm, tok_s in speeds.items()]


ARMS = (Arm(PLAIN, 0), Arm("1 drafts", 1), Arm("7 drafts", 7), Arm(PLAIN_AGAIN, 0))


def test_a_ratio_is_taken_inside_a_round_so_that_a_slow_round_does_not_count():
    grid = Grid([*round_of(0, 1.0), *round_of(1, 0.3), *round_of(2, 1.1)], ARMS)

    assert grid.over_plain(AT_1, "7 drafts") == pytest.approx(2.5)
    assert grid.again_over_first(AT_1) == pytest.approx(110 / 90)
    assert grid.tok_s(AT_1, "7 drafts") == pytest.approx(250)


def test_the_best_width_is_a_drafting_one_even_where_plain_is_faster():
    slow = [visit(PLAIN, 100.0), visit("1 drafts", 80.0), visit("7 drafts", 60.0)]
    grid = Grid([*slow, visit(PLAIN_AGAIN, 100.0)], ARMS)

    arm, ratio = grid.best(AT_1)

    assert arm.name == "1 drafts"
    assert ratio == pytest.approx(0.8)


def test_figures_are_named_by_concurrency_and_marked_where_they_are_sampled():
    grid = Grid([*round_of(0, 1.0), *round_of(0, 1.0, AT_8_WARM)], ARMS)

    assert grid_figures(grid) == {
        "speedup_at_1_best_width": pytest.approx(2.5),
        "again_over_plain_at_1": pytest.approx(110 / 90),
        "speedup_t1_at_8_best_width": pytest.approx(2.5),
        "again_over_plain_t1_at_8": pytest.approx(110 / 90),
    }


def test_each_temperature_has_a_table_with_a_row_an_arm():
    grid = Grid([*round_of(0, 1.0), *round_of(0, 1.0, AT_8_WARM)], ARMS)

    tables = grid_tables(grid)

    assert [table.rows[2] for table in tables] == [("7 drafts", "250", "2.50", "-")] * 2
    assert "temperature 1" in tables[1].title


def test_a_request_with_other_ids_than_plain_in_its_round_is_counted():
    wrong = ((1, 2, 3, 9), (5, 6))
    visits = [
        *round_of(0, 1.0),
        visit(PLAIN, 90.0, 1),
        visit("1 drafts", 140.0, 1, ids=wrong),
        visit("7 drafts", 250.0, 1, ids=((9,), (9,))),
    ]
    assert ids_that_differ(visits, PLAIN) == 3


def test_a_pass_of_the_drafter_is_priced_in_plain_steps_without_the_steps_that_did_not_draft():
    drafting = visit("7 drafts", 250.0, steps=(0.014, 0.014, 0.011), drafts=(0.002, 0.002, 0.0))
    plain = visit(PLAIN, 90.0, steps=(0.010, 0.010, 0.5), drafts=(0.0, 0.0, 0.0))
    assert draft_over_plain_step([drafting], [plain]) == pytest.approx(0.2)


def test_acceptance_counts_the_extra_token_and_each_position_by_those_that_reached_it():
    steps = [
        StepStats(),
        StepStats(
            num_drafting=2,
            num_accepted_tokens=3,
            verified_graded=(2, 2, 1),
            verified_accepted=(2, 1, 0),
        ),
        StepStats(
            num_drafting=1, num_accepted_tokens=0, verified_graded=(1,), verified_accepted=(0,)
        ),
    ]

    acceptance = acceptance_of(steps)

    assert acceptance.length == 2.0
    assert acceptance.by_position == pytest.approx((2 / 3, 1 / 2, 0.0))


def test_tasks_without_a_verified_draft_have_no_figure_and_a_dash():
    found = {
        ("mix", 0.0): Acceptance(2, 3, Grades((2,), (2,))),
        ("mix", 1.0): Acceptance(2, 1, Grades((2,), (1,))),
        ("mbpp", 0.0): Acceptance(),
    }

    assert acceptance_figures(found) == {
        "acceptance_length_mix": 2.5,
        "acceptance_length_t1_mix": 1.5,
    }
    assert acceptance_table(found, 2, 8).rows == (
        ("mix", "0", "2.50", "1.00", "-"),
        ("mix", "1", "1.50", "0.50", "-"),
        ("mbpp", "0", "-", "-", "-"),
    )


def test_every_second_round_is_served_backwards_and_plain_drafts_nothing():
    arms = grid_arms(most=5)

    assert [arm.draft_length for arm in in_turn(arms, 0)] == [0, 1, 3, 5, 0]
    assert in_turn(arms, 1) == arms[::-1]
    assert arms[0].plan.context is ContextMode.COLD
    assert arms[2].plan.length_for("any") == 3


def test_task_files_are_named_as_figures_are(tmp_path: Path):
    (tmp_path / "mt-bench.jsonl").write_text('{"turns": ["a", "b"]}\n{"turns": ["c"]}\n')
    assert read_tasks(tmp_path) == {"mt_bench": [("a", "b"), ("c",)]}


@pytest.mark.parametrize("line", ["no", "[]", '{"turns": []}', '{"turns": "a"}', '{"turns": [1]}'])
def test_a_line_that_is_no_conversation_is_named(tmp_path: Path, line: str):
    (tmp_path / "task.jsonl").write_text(f'{{"turns": ["a"]}}\n{line}\n')
    with pytest.raises(TaskFileError, match=r"task\.jsonl, line 2"):
        read_tasks(tmp_path)


def test_a_folder_without_task_files_is_refused(tmp_path: Path):
    with pytest.raises(TaskFileError, match="holds no"):
        read_tasks(tmp_path)


def test_a_sample_is_the_same_each_time_and_never_larger_than_what_there_is():
    all_of = [(str(number),) for number in range(50)]
    assert sample(all_of, 5, seed=1) == sample(all_of, 5, seed=1)
    assert len(set(sample(all_of, 5, seed=1))) == 5
    assert len(sample(all_of[:3], 5, seed=1)) == 3

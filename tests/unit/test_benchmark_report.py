"""The benchmarks' door: what must hold decides the exit code, and a result is written whole."""

import json
import math
from pathlib import Path

import pytest

from benchmarks.report import Options, Result, Table, number_text, run_benchmark, table_text


def run(result: Result, *argv: str) -> int:
    with pytest.raises(SystemExit) as exit_info:
        run_benchmark("sample", "A sample.", lambda _: result, argv=argv)
    assert isinstance(exit_info.value.code, int)
    return exit_info.value.code


def test_a_run_whose_figures_hold_exits_with_zero():
    assert run(Result(figures={"ids_differ": 0, "rate": 2.5}, must_hold={"ids_differ": 0})) == 0


def test_a_figure_that_must_hold_and_does_not_fails_the_run_and_is_named(
    capsys: pytest.CaptureFixture[str],
):
    assert run(Result(figures={"ids_differ": 3}, must_hold={"ids_differ": 0})) == 1
    assert "ids_differ must be 0 but is 3" in capsys.readouterr().err


@pytest.mark.parametrize(("speedup", "code"), [(1.6, 0), (1.5, 1), (1.4, 1)])
def test_a_figure_that_must_exceed_a_bound_fails_the_run_at_or_under_it(
    speedup: float, code: int, capsys: pytest.CaptureFixture[str]
):
    assert run(Result(figures={"speedup": speedup}, must_exceed={"speedup": 1.5})) == code
    wrong = f"speedup must be over 1.5 but is {speedup:g}"
    assert (wrong in capsys.readouterr().err) == bool(code)


def test_a_figure_that_must_hold_but_was_not_measured_fails_the_run(
    capsys: pytest.CaptureFixture[str],
):
    assert run(Result(figures={}, must_hold={"pages_leaked": 0})) == 1
    assert "pages_leaked must be 0 but was not measured" in capsys.readouterr().err


def test_the_json_holds_flat_figures_conditions_and_what_broke(tmp_path: Path):
    path = tmp_path / "new folder" / "sample.json"
    result = Result(
        figures={"ids_differ": 1, "rate": 2.5},
        must_hold={"ids_differ": 0},
        conditions={"dtype": "bfloat16", "threads": 2},
        detail={"rounds": [1, 2]},
    )

    run(result, "--quick", "--json", str(path))

    written = json.loads(path.read_text())
    assert written["benchmark"] == "sample"
    assert written["figures"] == {"ids_differ": 1, "rate": 2.5}
    assert written["broken"] == ["ids_differ must be 0 but is 1"]
    assert written["machine"]["dtype"] == "bfloat16"
    assert written["machine"]["threads"] == 2
    assert written["machine"]["cpus"] >= 1
    assert written["detail"] == {"rounds": [1, 2]}
    assert written["quick"] is True
    assert [entry.name for entry in path.parent.iterdir()] == ["sample.json"]


def test_a_benchmark_that_fails_leaves_the_earlier_result_as_it_was(tmp_path: Path):
    path = tmp_path / "sample.json"
    path.write_text("earlier")

    def fail(_: Options) -> Result:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        run_benchmark("sample", "A sample.", fail, argv=["--json", str(path)])
    assert path.read_text() == "earlier"


def test_a_json_path_that_cannot_be_written_is_refused_before_measuring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").touch()
    measured = []

    with pytest.raises(SystemExit) as exit_info:
        run_benchmark(
            "sample",
            "A sample.",
            lambda options: measured.append(options) or Result(figures={}),
            argv=["--json", str(tmp_path / "file" / "sample.json")],
        )

    assert exit_info.value.code == 2
    assert "cannot be written" in capsys.readouterr().err
    assert measured == []


def test_own_arguments_reach_the_benchmark():
    seen: list[Options] = []

    with pytest.raises(SystemExit):
        run_benchmark(
            "sample",
            "A sample.",
            lambda options: seen.append(options) or Result(figures={}),
            add_arguments=lambda parser: parser.add_argument("--soak", type=int, default=0),
            argv=["--soak", "7"],
        )

    assert seen[0].arguments.soak == 7
    assert seen[0].quick is False
    assert seen[0].json_path is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_figure_that_is_not_a_finite_number_is_refused_by_name(value: float):
    with pytest.raises(ValueError, match="figure rate is"):
        Result(figures={"rate": value})


def test_a_row_with_a_missing_cell_is_refused_by_the_table():
    with pytest.raises(ValueError, match="2 columns, but a row has 1"):
        Table("speeds", ("engine", "tok/s"), (("ours",),))


def test_columns_line_up_whatever_the_width_of_their_cells():
    lines = table_text(Table("t", ("engine", "1"), (("ours", "87.4"), ("x", "1,212")))).split("\n")
    assert len({len(line) for line in lines}) == 1
    assert lines[2] == "| ours   |  87.4 |"


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), (0, "0"), (12_345, "12,345"), (1.23456, "1.235")]
)
def test_counts_are_written_whole_and_ratios_short(value: float | None, text: str):
    assert number_text(value) == text

"""The speculation benchmark's arithmetic: speeds by round, acceptance by position."""

import argparse

import pytest

from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.script_drafter import ScriptDrafter, all_right, failing, right_of
from benchmarks.rigs.serial import serial_answer
from benchmarks.rigs.served import StepFailedError
from benchmarks.speculation.__main__ import temperatures
from benchmarks.speculation.arms import PLAIN, PLAIN_AGAIN, Arm, drafting_arm, grid_arms, in_turn
from benchmarks.speculation.runs import GridLoad, acceptance_on, grid_visits
from benchmarks.speculation.serving import Server
from benchmarks.speculation.summary import (
    Grid,
    acceptance_figures,
    acceptance_table,
    best_cells_figures,
    best_table,
    cost_figures,
    cost_table,
    draft_over_plain_step,
    grid_figures,
    grid_tables,
)
from benchmarks.speculation.visits import (
    Acceptance,
    Load,
    Visit,
    acceptance_of,
    ids_that_differ,
)
from dflash.plan import Arm as PlanArm
from dflash.plan import DraftPlan
from dflash.request import GenerateRequest, SamplingParams
from dflash.stats import DrafterStats, Grades, StepStats

AT_1 = Load("mix", concurrency=1, num_requests=2, max_tokens=4, temperature=0.0)
AT_8_WARM = Load("mix", concurrency=8, num_requests=8, max_tokens=4, temperature=1.0)
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
    speeds = {PLAIN: 90.0, "d:1": 140.0, "d:7": 250.0, PLAIN_AGAIN: 110.0}
    return [visit(arm, tok_s * slow_down, index, load) for arm, tok_s in speeds.items()]


ARMS = (Arm(PLAIN), drafting_arm("d", 1), drafting_arm("d", 7), Arm(PLAIN_AGAIN))


def test_a_ratio_is_taken_inside_a_round_so_that_a_slow_round_does_not_count():
    grid = Grid([*round_of(0, 1.0), *round_of(1, 0.3), *round_of(2, 1.1)], ARMS)

    assert grid.over_plain(AT_1, "d:7") == pytest.approx(2.5)
    assert grid.again_over_first(AT_1) == pytest.approx(110 / 90)
    assert grid.tok_s(AT_1, "d:7") == pytest.approx(250)


def test_the_best_width_is_a_drafting_one_even_where_plain_is_faster():
    slow = [visit(PLAIN, 100.0), visit("d:1", 80.0), visit("d:7", 60.0)]
    grid = Grid([*slow, visit(PLAIN_AGAIN, 100.0)], ARMS)

    arm, ratio = grid.best(AT_1, ["d"])

    assert arm.name == "d:1"
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

    assert [table.rows[2] for table in tables] == [("d:7", "250", "2.50", "-")] * 2
    assert "temperature 1" in tables[1].title


def test_a_request_with_other_ids_than_plain_in_its_round_is_counted():
    wrong = ((1, 2, 3, 9), (5, 6))
    visits = [
        *round_of(0, 1.0),
        visit(PLAIN, 90.0, 1),
        visit("d:1", 140.0, 1, ids=wrong),
        visit("d:7", 250.0, 1, ids=((9,), (9,))),
    ]
    assert ids_that_differ(visits, PLAIN) == 3


def test_a_pass_of_the_drafter_is_priced_in_plain_steps_without_the_steps_that_did_not_draft():
    drafting = visit("d:7", 250.0, steps=(0.014, 0.014, 0.011), drafts=(0.002, 0.002, 0.0))
    plain = visit(PLAIN, 90.0, steps=(0.010, 0.010, 0.5), drafts=(0.0, 0.0, 0.0))
    assert draft_over_plain_step([drafting], [plain]) == pytest.approx(0.2)


def test_passes_and_steps_are_priced_in_plain_steps_of_a_greedy_load():
    steps = {PLAIN: (0.010,), "d:1": (0.020,), "d:7": (0.020,), PLAIN_AGAIN: (0.012,)}
    drafts = {"d:1": (0.001,), "d:7": (0.0022,)}
    greedy = [visit(arm, 9.0, steps=s, drafts=drafts.get(arm, (0.0,))) for arm, s in steps.items()]
    other = [visit(arm, 9.0, load=AT_8_WARM, steps=(1.0,), drafts=(1.0,)) for arm in steps]

    grid = Grid([*other, *greedy], ARMS)

    assert cost_figures(grid) == {"draft_over_plain_step_at_1": pytest.approx(0.2)}
    table = cost_table(grid)
    assert table.columns == ("arm", "step at 1", "drafter at 1")
    assert table.rows[1:3] == (("d:1", "1.82", "0.09"), ("d:7", "1.82", "0.20"))
    assert table.rows[0] == ("plain", "0.91", "-")


def test_a_lighter_rung_has_figures_of_its_own_and_its_cells_are_those_it_is_best_in():
    arms = (Arm(PLAIN), drafting_arm("d", 7), drafting_arm("mtp", 1), Arm(PLAIN_AGAIN))
    speeds = {
        AT_1: {PLAIN: 100.0, "d:7": 250.0, "mtp:1": 140.0, PLAIN_AGAIN: 100.0},
        AT_8_WARM: {PLAIN: 100.0, "d:7": 90.0, "mtp:1": 120.0, PLAIN_AGAIN: 100.0},
    }
    steps, drafts = (0.01,), {"d:7": (0.003,), "mtp:1": (0.0005,)}
    grid = Grid(
        [
            visit(arm, tok_s, load=load, steps=steps, drafts=drafts.get(arm, (0.0,)))
            for load, each in speeds.items()
            for arm, tok_s in each.items()
        ],
        arms,
    )

    assert grid_figures(grid)["mtp_speedup_at_1_best_width"] == pytest.approx(1.4)
    assert grid_figures(grid)["speedup_at_1_best_width"] == pytest.approx(2.5)
    assert cost_figures(grid) == {
        "draft_over_plain_step_at_1": pytest.approx(0.3),
        "mtp_draft_over_plain_step_at_1": pytest.approx(0.05),
    }
    assert best_cells_figures(grid) == {"mtp_best_cells": 1}
    assert [row[3:] for row in best_table(grid).rows] == [("d:7", "2.50"), ("mtp:1", "1.20")]


def test_a_load_on_which_every_draft_loses_is_nobodys_best_cell():
    slow = [visit(arm, tok_s) for arm, tok_s in ((PLAIN, 100.0), ("mtp:1", 90.0))]
    arms = (Arm(PLAIN), drafting_arm("mtp", 1), Arm(PLAIN_AGAIN))
    grid = Grid([*slow, visit(PLAIN_AGAIN, 100.0)], arms)

    assert best_cells_figures(grid) == {"mtp_best_cells": 0}
    assert best_table(grid).rows == (("mix", "0", "1", "plain", "0.90"),)


def test_acceptance_counts_the_extra_token_and_each_position_by_those_that_reached_it():
    steps = [
        StepStats(),
        StepStats(by_drafter={"a": DrafterStats(2, 6, 3, Grades((2, 2, 1), (2, 1, 0)))}),
        StepStats(by_drafter={"a": DrafterStats(1, 1, 0, Grades((1,), (0,)))}),
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
    assert acceptance_table(found, drafting_arm("d", 2), 8).rows == (
        ("mix", "0", "2.50", "1.00", "-"),
        ("mix", "1", "1.50", "0.50", "-"),
        ("mbpp", "0", "-", "-", "-"),
    )


def test_every_second_round_is_served_backwards_and_plain_drafts_nothing():
    arms = grid_arms({"d": 5, "mtp": 2})

    names = ["plain", "d:1", "d:3", "d:5", "mtp:1", "mtp:2", "plain again"]
    assert [arm.name for arm in in_turn(arms, 0)] == names
    assert in_turn(arms, 1) == arms[::-1]
    assert arms[0].plan == DraftPlan()
    assert arms[2].plan == DraftPlan(PlanArm("d", 3), warm=frozenset({"d"}), num_graded=1)
    # As served: one block a step is drafted to its end.
    assert [arm.plan.num_graded for arm in arms] == [0, 1, 1, 1, 1, 1, 0]


class Parrot:
    """A chat whose ids are lengths, and whose answers are written out."""

    def token_ids(self, turns: list[str]) -> list[int]:
        return [len(turn) for turn in turns]

    def text(self, token_ids: tuple[int, ...]) -> str:
        return "+" * sum(token_ids)


class EchoServer:
    """Answers each prompt with its last id and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[list[int]]] = []

    def visit(self, prompts: list[list[int]], load: Load, arm: Arm, round_index: int) -> Visit:
        self.asked.append(prompts)
        ids = tuple((prompt[-1],) for prompt in prompts)
        return Visit(load, arm.name, round_index, 1.0, ids, Acceptance(len(prompts), 1), (), ())


def test_a_second_turn_is_asked_after_the_answer_to_the_first():
    server = EchoServer()

    acceptance = acceptance_on(server, Parrot(), [("a", "bb"), ("ccc",)], AT_8_WARM, ARMS[2])

    # The answer to "a" is one "+", that to "ccc" is never asked on.
    assert server.asked == [[[1], [3]], [[1, 1, 2]]]
    assert acceptance == Acceptance(3, 2)


def test_each_round_of_the_grid_has_prompts_that_all_its_arms_share():
    server = EchoServer()
    prompts = ([number] for number in range(100))

    visits = grid_visits(server, prompts, [GridLoad(AT_1, 2)], ARMS, on_visit=list)

    first, second = [[0], [1]], [[2], [3]]
    assert server.asked == [first] * len(ARMS) + [second] * len(ARMS)
    assert [v.arm for v in visits[: len(ARMS)]] == [arm.name for arm in ARMS]
    assert [v.arm for v in visits[len(ARMS) :]] == [arm.name for arm in ARMS[::-1]]


def test_a_server_gives_the_same_ids_in_every_arm_and_counts_what_it_drafted():
    model = HashLM()
    load = Load("mix", concurrency=2, num_requests=3, max_tokens=12, temperature=1.0)
    prompts = [[5, 6, 7], [9] * 20, [11, 12]]
    answers = {}
    for seed, prompt in enumerate(prompts):
        sampling = SamplingParams(temperature=load.temperature)
        request = GenerateRequest("r", tuple(prompt), load.max_tokens, sampling, seed)
        answers[seed, 0] = (*prompt, *serial_answer(model, request).token_ids)
    server = Server(model, [ScriptDrafter(model.facts, right_of(answers), all_right)])

    plain = server.visit(prompts, load, Arm(PLAIN), 0)
    drafting = server.visit(prompts, load, drafting_arm("script", 7), 0)

    assert [len(ids) for ids in plain.token_ids] == [12, 12, 12]
    assert drafting.token_ids == plain.token_ids
    assert ids_that_differ([plain, drafting], PLAIN) == 0
    assert plain.acceptance.num_drafting == 0
    assert sum(plain.draft_s) == 0.0
    assert drafting.acceptance.length > 4.0
    assert len(drafting.decode_step_s) < len(plain.decode_step_s)


@pytest.mark.parametrize("text", ["1", "0,x", "", "0,-1", "0,101"])
def test_temperatures_without_a_greedy_one_or_out_of_range_are_refused(text: str):
    with pytest.raises(argparse.ArgumentTypeError):
        temperatures(text)


def test_temperatures_are_a_list():
    assert temperatures("0,1,0.3") == [0.0, 1.0, 0.3]


def test_a_visit_whose_drafter_fails_is_no_sample():
    model = HashLM()
    server = Server(model, [ScriptDrafter(model.facts, lambda _: (), failing)])
    with pytest.raises(StepFailedError, match="the script says fail"):
        server.visit([[5, 6, 7]], AT_1, drafting_arm("script", 7), 0)

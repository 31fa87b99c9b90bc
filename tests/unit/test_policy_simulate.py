"""The simulated replica keeps its own books, and what it says of the law can be checked by hand."""

from argparse import Namespace
from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.report import Options
from benchmarks.simulate.__main__ import measure
from benchmarks.simulate.baselines import Argmax, ByLoad, EmaTiers, Fixed, Law, tuned_table
from benchmarks.simulate.h200 import (
    CHANCES,
    LADDER,
    PUBLISHED,
    Cell,
    chance_for,
    fitted,
    read_cells,
)
from benchmarks.simulate.score import not_below_plain, recovery_s, scored, waited_s
from benchmarks.simulate.traces import read_trace
from policy.arms import PLAIN_ARM, Arm
from policy.decision import Plan, Residency
from policy.errors import PolicyError
from policy.simulate import Simulation
from policy.terms import Terms
from policy.truth import Arrival, Truth

COSTS = PUBLISHED.table()
TRUTH = Truth(LADDER, COSTS, {"text": {"dflash2": 0.85, "mtp": 0.8}}, noise=0.0, spike_share=0.0)
TERMS = Terms(LADDER, COSTS)
WIDEST = Arm("dflash2", 7)
SHORT = Arm("mtp", 3)


def steady(rows: int, num_tokens: int = 2000) -> list[Arrival]:
    return [Arrival(0.0, 1, num_tokens, "text") for _ in range(rows)]


def lived(controller, arrivals, truth: Truth = TRUTH, until_s: float = float("inf")) -> Simulation:
    simulation = Simulation(arrivals, truth, controller)
    simulation.run(until_s)
    return simulation


def test_every_request_emits_its_tokens_and_plain_takes_its_time():
    simulation = lived(Fixed(PLAIN_ARM), steady(3, 50))
    assert [finished.num_tokens for finished in simulation.finished] == [50] * 3
    step_s = COSTS.seconds(PLAIN_ARM, 3, 0, 0)
    assert simulation.finished[0].decode_s == pytest.approx(49 * step_s)
    assert {(tick.worth, tick.worths[tick.arm]) for tick in simulation.ticks} == {(1.0, 1.0)}


def test_drafts_emit_as_many_tokens_as_their_chances_say():
    simulation = lived(Fixed(WIDEST), steady(4, 20_000))
    tokens = sum(finished.num_tokens for finished in simulation.finished)
    steps = sum(tick.seconds for tick in simulation.ticks) / COSTS.seconds(WIDEST, 4, 7, 0)
    assert tokens / steps / 4 == pytest.approx(sum(0.85**j for j in range(8)), rel=0.02)
    assert tokens == 80_000


def test_true_worth_is_tokens_in_plain_steps():
    worths = TRUTH.worths(Counter({"text": 8}), 0.0)
    tokens = 1.0 + 0.85 + 0.85**2 + 0.85**3
    plain_s = COSTS.seconds(PLAIN_ARM, 8, 0, 0)
    arm = Arm("dflash2", 3)
    assert worths[arm] == pytest.approx(tokens * plain_s / COSTS.seconds(arm, 8, 3, 0))


class Tried:
    """A trial that never ends: some requests draft, the others do not."""

    def __init__(self, num_drafting: int) -> None:
        self._plan = Plan(Arm("dflash2", 3), num_drafting=num_drafting)

    def plan(self, _signals) -> Plan:
        return self._plan


def test_a_trial_is_worth_what_those_bring_who_draft_in_it():
    few, all_of_them = (lived(Tried(count), steady(8, 40)).ticks[0] for count in (2, 8))
    arm = Arm("dflash2", 3)
    tokens = (2 * (1 + 0.85 + 0.85**2 + 0.85**3) + 6) / 8
    step_s = COSTS.seconds(arm, 8, 2 * 3 / 8, 0)
    plain_s = COSTS.seconds(PLAIN_ARM, 8, 0, 0)
    assert few.worth == pytest.approx(tokens * plain_s / step_s)
    assert few.worth < all_of_them.worth == pytest.approx(all_of_them.worths[arm])


class TakingOver:
    """Drafts with one for the first request, then with another for those that come later."""

    def __init__(self) -> None:
        self.lacking_s: list[float] = []

    def plan(self, signals) -> Plan:
        warm = {"mtp": Residency.WARM, "dflash2": Residency.WARM}
        self.lacking_s.append(signals.condition_of("dflash2").catch_up_s)
        if len(self.lacking_s) < 3:
            return Plan(SHORT, residency={"mtp": Residency.WARM})
        return Plan(WIDEST, taking_over=SHORT, residency=warm)


def test_a_drafter_that_takes_over_drafts_for_newcomers_and_catches_up_with_nobody():
    dear = replace(TRUTH, catch_up_s=5.0)
    soon_s = 10 * COSTS.seconds(SHORT, 1, 3, 0)
    arrivals = [Arrival(0.0, 1, 400, "text"), Arrival(soon_s, 1, 400, "text")]
    controller = TakingOver()
    ticks = lived(controller, arrivals, dear, until_s=0.6).ticks
    assert all(tick.own_s < 1.0 for tick in ticks)
    plain_s = COSTS.seconds(PLAIN_ARM, 2, 0, 0)
    # Each drafts for one of two: the time of such a step is plain's and what either adds to it.
    added = [COSTS.seconds(arm, 2, arm.draft_length / 2, 0) - plain_s for arm in (SHORT, WIDEST)]
    tokens = sum(TRUTH.tokens("text", arm, 0.0) for arm in (SHORT, WIDEST)) / 2
    (both, *_) = [tick for tick in ticks if tick.num_rows == 2]
    assert both.worth == pytest.approx(tokens * plain_s / (plain_s + sum(added)))
    # The old one's context is lacking until it ends, the new one's never.
    assert controller.lacking_s[4] == 5.0
    assert set(controller.lacking_s) == {0.0, 5.0}


def test_noise_of_step_times_is_not_taken_for_a_loss():
    loud = replace(TRUTH, noise=0.2, spike_share=0.1)
    plain = lived(Fixed(PLAIN_ARM), steady(4, 2000), loud)
    score = scored(plain.ticks, plain.finished, WIDEST)
    assert score.over_plain == pytest.approx(1.0)
    assert not_below_plain(plain.ticks) == 1.0
    lost = lived(Fixed(Arm("mtp", 7)), steady(64, 6000), loud, until_s=20.0)
    assert not_below_plain(lost.ticks) == 0.0


def test_the_same_seed_lives_the_same_life():
    noisy = replace(TRUTH, noise=0.05, spike_share=0.01)
    first, second = (lived(Law(TERMS), steady(8), noisy) for _ in range(2))
    assert first.ticks == second.ticks


@pytest.mark.parametrize("rows", [1, 8, 32, 64])
def test_the_law_is_near_the_best_fixed_arm_at_a_steady_load(rows):
    noisy = replace(TRUTH, noise=0.05, spike_share=0.004)
    simulation = lived(Law(TERMS), steady(rows, 100_000), noisy, until_s=60.0)
    simulation.finished = lived(Fixed(PLAIN_ARM), steady(1, 10)).finished
    score = scored(simulation.ticks, simulation.finished, WIDEST)
    assert score.regret < 0.05
    assert score.switches_per_min <= 6.0


def test_the_law_comes_back_to_a_healed_drafter_where_a_bare_argmax_never_does():
    alone = replace(TRUTH, broken={"dflash2": (20.0, 60.0), "mtp": (20.0, 60.0)}, noise=0.05)
    waited = {}
    for controller in (Law(TERMS), Argmax(TERMS)):
        ticks = lived(controller, steady(4, 100_000), alone, until_s=160.0).ticks
        assert recovery_s(ticks, 60.0) is None or isinstance(controller, Law)
        waited[type(controller)] = waited_s(ticks, 60.0, "dflash2")
    assert waited[Argmax] is None
    assert waited[Law] is not None
    assert waited[Law] < 60.0


def test_nothing_is_drafted_while_memory_is_red():
    pressed = replace(TRUTH, red=(5.0, 20.0))
    ticks = lived(Law(TERMS), steady(4, 100_000), pressed, until_s=40.0).ticks
    assert {tick.arm for tick in ticks if 5.1 < tick.at_s < 20.0} == {PLAIN_ARM}


def test_the_score_of_the_best_fixed_arm_has_no_regret_and_plain_is_not_below_itself():
    plain = lived(Fixed(PLAIN_ARM), steady(4, 3000))
    best = lived(Fixed(WIDEST), steady(4, 3000))
    score = scored(best.ticks, best.finished, WIDEST)
    assert score.regret == pytest.approx(0.0, abs=1e-9)
    assert score.low_load_loss == pytest.approx(0.0, abs=1e-9)
    assert scored(plain.ticks, plain.finished, WIDEST).regret > 0.5
    assert not_below_plain(plain.ticks) == 1.0


def test_a_tuned_table_narrows_with_load():
    table = tuned_table(TRUTH)
    assert isinstance(table, ByLoad)
    assert table.arm_at(1) == WIDEST
    assert table.arm_at(64).draft_length < 7


def test_moving_means_of_accepted_tokens_follow_the_tiers_of_the_load():
    one = lived(EmaTiers("dflash2"), steady(1, 2000)).ticks
    many = lived(EmaTiers("dflash2"), steady(64, 400)).ticks
    # A mean of 3.7 kept of five is not enough for seven.
    assert max(tick.arm.draft_length for tick in one) == 5
    assert {tick.arm.draft_length for tick in many if tick.num_rows == 64} == {0}


def test_chances_give_back_the_acceptance_length_they_were_made_from():
    chance = chance_for(5.46)
    assert sum(chance**j for j in range(8)) == pytest.approx(5.46)
    assert CHANCES["GSM8K"]["dflash2"] == pytest.approx(chance, abs=1e-3)


def test_a_fit_gives_back_the_step_times_it_was_made_from():
    cells = [
        Cell("t", drafter, rows, rows / PUBLISHED.step_s(drafter, rows, width), 1.0)
        for drafter, width in (("plain", 0), ("mtp", 7), ("dflash2", 7), ("dspark", 7))
        for rows in (1, 8, 32)
    ]
    fit = fitted(cells)
    for cell in cells:
        assert fit.predicted_tok_s(cell) == pytest.approx(cell.throughput_tok_s, rel=1e-3)


def test_traces_are_read_clipped_and_rescaled(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,10,5\n"
        "2023-11-16 18:17:13.9799600,5000,7\n"
    )
    trace = read_trace(path, ("a", "b"), 4096)
    assert [arrival.at_s for arrival in trace.arrivals] == [0.0, 10.0]
    assert trace.arrivals[1].num_prompt_tokens == 4096 - 7
    assert trace.clipped_share == 0.5
    assert trace.at_rate(1.0).arrivals[1].at_s == pytest.approx(2.0)
    lines = tmp_path / "trace.jsonl"
    lines.write_text('{"timestamp": 3000, "input_length": 10, "output_length": 5}\n')
    assert read_trace(lines, ("a",), 4096).arrivals == (Arrival(0.0, 10, 5, "a"),)


@pytest.mark.parametrize("text", ["", "WHEN,HOW\n1,2\n", "TIMESTAMP,ContextTokens\nsoon,2\n"])
def test_what_is_no_trace_or_table_is_refused_with_its_name(tmp_path, text):
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(PolicyError, match=r"--trace .*other\.csv"):
        read_trace(path, ("a",), 4096)
    with pytest.raises(PolicyError, match="--vendor-tables"):
        read_cells(path)


TABLE = """source,target,drafter,task,concurrency,metric,value
card:x,Qwen3.8-27B,AR,GSM8K,1,throughput_tok_s,66.8
card:x,Qwen3.8-27B,DFlash2,GSM8K,1,throughput_tok_s,248.4
card:x,Qwen3.8-27B,DFlash2,GSM8K,1,acceptance_length,5.46
"""


@pytest.mark.parametrize("folder", [".", ".."])
def test_every_published_cell_is_printed_where_the_table_lies_by_the_trace(tmp_path, folder):
    traces = tmp_path / "traces"
    traces.mkdir()
    trace = traces / "trace.jsonl"
    line = '{"timestamp": %d, "input_length": %d, "output_length": 40}\n'
    trace.write_text("".join(line % (1000 * at, 100 * 20**at) for at in range(3)))
    arguments = Namespace(trace=trace, model="h200", vendor_tables=None)
    options = Options(quick=True, arguments=arguments)

    without = measure(options)
    assert "--vendor-tables" in " ".join(without.notes)
    assert "33.3% of its requests were clipped" in " ".join(without.notes)
    assert [table.title.split(":")[0] for table in without.tables] == [
        "Load half",
        "Load full",
        "Load over",
    ]

    (traces / folder / "vendor_tables.csv").write_text(TABLE)
    *_, fit = measure(options).tables
    assert [row[0] for row in fit.rows] == ["GSM8K, dflash2, 1"]

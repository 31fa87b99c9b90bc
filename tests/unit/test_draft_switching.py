"""Several drafters in one engine: mixed in a batch, switched at any step, none in another's way."""

import logging

import pytest

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.script_drafter import SCRIPTED, ScriptDrafter, all_right, right_up_to
from benchmarks.rigs.serial import serial_answer
from dflash.config import EngineLimits
from dflash.drafters.base import DrafterFacts
from dflash.engine import Engine
from dflash.errors import ConfigError
from dflash.plan import PLAIN, Arm, DraftPlan, FixedPlanner
from dflash.stats import WhyPlain
from tests.rigs.drafted import (
    COLD,
    PREFIX,
    VOCAB,
    Plans,
    assert_right,
    limits,
    request,
    speculation,
    total,
)

BOTH = frozenset({"a", "b"})
A, B = Arm("a", 3), Arm("b", 2)
WITH_A, WITH_B = (DraftPlan(arm, warm=frozenset({arm.drafter})) for arm in (A, B))
A_BESIDE_B, B_BESIDE_A = DraftPlan(A, warm=BOTH), DraftPlan(B, warm=BOTH)


def two(plans, budget: int = 512, **scripts) -> Drive:
    """Return an engine with two drafters that are right."""
    return Drive(
        limits(4, budget),
        script={"a": all_right, "b": all_right, **scripts},
        planner=Plans(plans),
    )


def context_of(drive: Drive, drafter: str) -> list[int]:
    """Return how many computed tokens each running sequence's context lacks."""
    running = drive.engine.scheduler._running
    return [s.num_computed - s.followed_by[drafter].num_context for s in running]


def test_requests_of_one_batch_are_drafted_for_by_different_drafters():
    mixed = DraftPlan(A, {"second": B, "third": PLAIN}, BOTH)
    drive = two([mixed])
    requests = [request(name) for name in ("first", "second", "third")]
    drive.submit(*requests)
    drive.step(2)

    asked = {name: [row.seed for row in d.asked] for name, d in drive.drafters.items()}
    assert asked == {"a": [requests[0].seed], "b": [requests[1].seed]}
    did = drive.results[-1].stats.by_drafter
    assert (did["a"].num_draft_tokens, did["b"].num_draft_tokens) == (3, 2)
    drive.finish()
    assert_right(drive, *requests)
    assert speculation(drive, "third").num_plain == {WhyPlain.PLAN: 39}


@pytest.mark.parametrize(("before", "after"), [(WITH_A, WITH_B), (WITH_B, WITH_A)])
@pytest.mark.parametrize("pause", [[], [COLD] * 5])
def test_a_drafter_that_was_cold_is_caught_up_in_one_pass_and_drafts_in_the_next(
    before, after, pause
):
    drive = two([*[before] * 6, *pause, after])
    asked = request("r", max_tokens=90)
    drive.submit(asked)
    drive.step(6 + len(pause))
    missing = context_of(drive, after.arm.drafter)[0]
    drive.step()

    stats = drive.results[-1].stats
    assert stats.plain_rows == {WhyPlain.CATCHING_UP: 1}
    assert stats.num_catch_up_tokens == missing > 20
    drive.step()
    assert drive.results[-1].stats.by_drafter[after.arm.drafter].num_drafting == 1
    drive.finish()
    assert_right(drive, asked)


def test_between_warm_drafters_a_switch_costs_no_step():
    drive = two([A_BESIDE_B, A_BESIDE_B, B_BESIDE_A, A_BESIDE_B, B_BESIDE_A])
    asked = request("r", max_tokens=39)
    drive.submit(asked)
    drive.finish()
    assert_right(drive, asked)
    assert total(drive, "num_catch_up_tokens") == 0
    assert speculation(drive, "r").num_plain == {}
    assert speculation(drive, "r").num_drafting.keys() == BOTH


def test_one_drafts_in_the_very_run_that_catches_the_other_up():
    drive = two([*[WITH_A] * 5, A_BESIDE_B, B_BESIDE_A])
    asked = request("r", max_tokens=60)
    drive.submit(asked)
    drive.step(6)
    stats = drive.results[-1].stats
    assert stats.num_catch_up_tokens > 0
    assert stats.by_drafter["a"].num_accepted_tokens == 3
    assert context_of(drive, "b") == [0]
    drive.step()
    assert drive.results[-1].stats.by_drafter["b"].num_accepted_tokens == 2
    drive.finish()
    assert_right(drive, asked)


def test_one_drafts_beside_a_catch_up_that_takes_many_steps():
    drive = two([*[WITH_A] * 9, A_BESIDE_B], budget=12)
    asked = request("r", PREFIX[:78], max_tokens=90)
    drive.submit(asked)
    drive.finish()
    assert_right(drive, asked)
    in_parts = [r.stats for r in drive.results if r.stats.num_catch_up_tokens]
    assert len(in_parts) > 5
    assert all(stats.by_drafter["a"].num_draft_tokens > 0 for stats in in_parts[:-1])


def test_after_one_was_caught_up_only_its_own_blocks_are_not_graded():
    drive = two([*[WITH_A] * 4, *[A_BESIDE_B], DraftPlan(B, {"other": A}, BOTH)])
    drive.submit(request("r"), request("other"))
    drive.step(6)
    did = drive.results[-1].stats.by_drafter
    assert did["a"].grades.verified_graded[:3] == (1, 1, 1)
    assert did["b"].num_accepted_tokens == 2
    assert sum(did["b"].grades.verified_graded) == 0


@pytest.mark.parametrize("where", ["propose", "observe"])
def test_a_drafter_that_always_fails_does_not_keep_another_from_drafting(where: str):
    drive = two([DraftPlan(B, {"its": A}, BOTH)])
    if where == "observe":
        drive.drafters["a"].fault = RuntimeError("lost")
    else:
        drive.drafters["a"].script = lambda row, right: (VOCAB,)
    requests = [request("its"), request("others")]
    drive.submit(*requests)
    drive.finish()

    for each in requests:
        assert drive.answer(each.request_id) == serial_answer(drive.model, each)
    assert speculation(drive, "others").num_plain == {}
    assert speculation(drive, "others").num_drafting == {"b": 13}
    assert speculation(drive, "its").num_drafting == {}
    assert {r.stats.by_drafter["b"].num_faults for r in drive.results} == {0}
    assert sum(r.stats.by_drafter["a"].num_faults for r in drive.results) > 3


def test_only_a_drafter_that_computes_its_whole_block_is_asked_for_all_of_it():
    model = HashLM()
    known = {}
    drafters = [
        ScriptDrafter(
            model.facts,
            lambda row: known.setdefault(row.seed, (1,) * 9)[: row.num_drafts],
            all_right,
            facts=DrafterFacts(name, (0,), 7, SCRIPTED.max_context, is_whole),
        )
        for name, is_whole in (("a", True), ("b", False))
    ]
    plan = DraftPlan(A, {"second": B}, BOTH, num_graded=2)
    engine = Engine(model, EngineLimits(), drafters=drafters, planner=FixedPlanner(plan))
    engine.submit(request("first"))
    engine.submit(request("second"))
    engine.step()
    engine.step()
    assert [[row.num_drafts for row in drafter.asked] for drafter in drafters] == [[7], [2]]


def test_tokens_beyond_a_draft_are_graded_for_the_drafter_that_made_them():
    with_tail = DraftPlan(Arm("a", 1), warm=BOTH, num_graded=1)
    drive = two([DraftPlan(warm=BOTH), with_tail, B_BESIDE_A], b=right_up_to(0, VOCAB))
    drive.submit(request("r"))
    drive.step(2)
    drive.step(2)
    did = [result.stats.by_drafter for result in drive.results]
    assert did[1]["a"].grades.free_accepted == (0, 1, 0, 0, 0, 0, 0)
    assert did[2]["a"].grades.free_accepted == (0, 0, 1, 0, 0, 0, 0)
    assert did[3]["a"].grades.free_accepted == (0, 0, 0, 1, 0, 0, 0)
    assert did[2]["b"].grades.verified_graded[:2] == (1, 0)
    assert sum(did[2]["b"].grades.verified_accepted) == 0


def test_the_target_is_asked_for_each_tapped_layer_once():
    asked = []

    class Watched(HashLM):
        def forward(self, batch, taps=()):
            asked.append(taps)
            return super().forward(batch, taps)

    drive = Drive(
        model=Watched(),
        script={"a": all_right, "b": all_right},
        planner=Plans([A_BESIDE_B, WITH_A, COLD]),
    )
    drive.submit(request("r"))
    drive.step(3)
    assert asked == [(0,), (0,), ()]


def test_two_drafters_of_one_name_are_refused():
    model = HashLM()
    drafter = ScriptDrafter(model.facts, lambda row: (), all_right)
    with pytest.raises(ConfigError, match="two drafters are named 'script'"):
        Engine(model, EngineLimits(), drafters=[drafter, drafter])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Arm("a", 0), "an arm of drafter 'a' has draft length 0"),
        (lambda: Arm("plain", 2), "an arm of drafter 'plain' has draft length 2"),
        (lambda: Arm("a", -1), "0 or more, got -1"),
        (lambda: DraftPlan(A), "drafts with 'a' and keeps none warm; add 'a' to warm"),
        (lambda: DraftPlan(A, {"r": B}, frozenset({"a"})), "add 'b' to warm"),
    ],
)
def test_an_arm_or_a_plan_that_cannot_be_is_refused_where_it_is_made(make, words: str):
    with pytest.raises(ValueError, match=words):
        make()


class Wrong:
    """Names a drafter that is not there, or cannot make a plan at all, in every second step."""

    def __init__(self, make) -> None:
        self._make = make
        self._num_steps = 0

    def plan(self, _signals) -> DraftPlan:
        self._num_steps += 1
        return self._make() if self._num_steps % 2 == 0 else A_BESIDE_B


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: DraftPlan(warm=frozenset({"c"})),
            "PlanError: a plan names drafter 'c'; this engine has a, b",
        ),
        (lambda: DraftPlan(A), "ValueError: a plan drafts with 'a'"),
        (lambda: DraftPlan(num_graded=1.5), "PlanError: a plan's num_graded is 1.5"),
        (lambda: DraftPlan(num_graded="all"), "PlanError: a plan's num_graded is 'all'"),
        (
            lambda: DraftPlan(by_request={"r": Arm("a", 1.5)}, warm=frozenset({"a"})),
            "PlanError: a plan's draft_length of r is 1.5",
        ),
        (lambda: None, "AttributeError"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_said_and_the_one_before_it_stays(
    make, words: str, caplog
):
    drive = two([COLD])
    drive.engine.set_planner(Wrong(make))
    asked = request("r")
    drive.submit(asked)
    with caplog.at_level(logging.ERROR):
        drive.finish()
    assert_right(drive, asked)
    faults = [result.stats.plan_fault for result in drive.results]
    assert faults[0::2] == [None] * len(faults[0::2])
    assert all(fault is not None and words in fault for fault in faults[1::2])
    # With the plan before it each of those steps drafted: none is plain for its plan.
    assert WhyPlain.PLAN not in speculation(drive, "r").num_plain
    assert caplog.text.count("a plan was refused") == 1


def test_a_planner_does_not_answer_for_the_plans_of_the_one_before_it():
    drive = two([A_BESIDE_B])
    drive.submit(request("r"))
    drive.step(2)
    drive.engine.set_planner(FixedPlanner(DraftPlan(num_graded=-1)))
    drive.step(3)
    assert [each.stats.num_draft_tokens for each in drive.results] == [0, 3, 0, 0, 0]
    assert all("num_graded is -1" in (each.stats.plan_fault or "") for each in drive.results[2:])


def test_an_engine_without_drafters_refuses_every_plan_that_drafts():
    drive = Drive(planner=FixedPlanner(WITH_A))
    asked = request("r")
    drive.submit(asked)
    drive.finish()
    assert_right(drive, asked)
    assert "this engine has none" in (drive.results[0].stats.plan_fault or "")


def test_in_a_trial_only_those_that_draft_are_caught_up_with():
    trial = DraftPlan(A, {"other": PLAIN}, frozenset({"a"}), followed=frozenset({"tried"}))
    drive = two([*[COLD] * 6, *[trial] * 4, WITH_A])
    # Prompts of their own: whoever shares a page shares its context.
    asked = [
        request("tried", PREFIX[:20], max_tokens=60),
        request("other", PREFIX[40:60], max_tokens=60),
    ]
    drive.submit(*asked)
    drive.step(6)
    missing = context_of(drive, "a")
    drive.step()
    assert drive.results[-1].stats.num_catch_up_tokens == missing[0]
    assert context_of(drive, "a")[0] == 0
    drive.step()
    assert drive.results[-1].stats.num_accepted_tokens == 3
    assert context_of(drive, "a")[1] > missing[1]
    drive.finish()
    assert_right(drive, *asked)
    # Whoever was left out is caught up when all draft.
    assert speculation(drive, "other").num_accepted > 0

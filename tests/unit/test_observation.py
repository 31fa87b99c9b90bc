"""What the policy is told of an engine: each figure at its place."""

from dataclasses import replace

from benchmarks.rigs.made_up_times import LADDER, measured
from deployments.engine_plan import draft_plan
from deployments.observation import Observation, Sources
from deployments.request_history import RequestHistory
from deployments.step_times import times_from
from dflash.plan import Decoding, DraftPlan, PlanSignals, Release
from dflash.stats import EngineCounts, StepStats
from policy.arms import PLAIN_ARM, Arm
from policy.decision import Plan, Residency
from policy.governor import Release as Given
from policy.pins import Pin
from policy.readings import MemoryReading
from policy.signals import DrafterCondition, PoolSignal

READING = MemoryReading(1000, 400, None)
SOURCES = Sources("a", lambda: READING, 100, 200, clock=lambda: 7.0, draw=lambda: 0.25)
ROWS = (Decoding("r", 20, max_draft_length=2), Decoding("s", 40))


def test_each_figure_of_the_engine_is_told_at_its_place():
    found = measured()
    kept = tuple(
        replace(time, seconds=time.seconds + 0.003)
        if (time.drafter, time.draft_length) == ("mtp", 0)
        else time
        for time in found.times
    )
    times = times_from(replace(found, times=kept), LADDER)
    seen = Observation(times, SOURCES)
    engine = PlanSignals(
        EngineCounts(2, 3, 30, 10, 0, 100),
        ROWS,
        StepStats(),
        num_behind={"dflash2": 50, "mtp": 0},
        max_num_seqs=8,
        page_size=32,
        absent=frozenset({"mtp"}),
    )
    seen.see(engine, PLAIN_ARM)
    for number in (6, 9):
        last = StepStats(num_decoding=2, num_prefill_tokens=number, num_catch_up_tokens=1)
        seen.see(replace(engine, last=last), PLAIN_ARM)
    pin = Pin(Arm("mtp", 2), ("a",), "ana", "why", 9.0)
    told = seen.look(engine, [pin], Given.WEIGHTS)

    assert (told.now_s, told.draw, told.pin, told.reading) == (7.0, 0.25, pin, READING)
    assert (told.num_decoding, told.num_waiting, told.num_admissible) == (2, 3, 6)
    assert (told.num_context_tokens, told.num_prefill_tokens) == (30, (7 + 10) // 2)
    assert [step.num_other_tokens for step in told.steps] == [7, 10]
    assert told.pool == PoolSignal(num_pages=100, num_pages_used=10, page_size=32)
    assert told.restore_bytes == 200
    assert [(each.request_id, each.ceiling) for each in told.requests] == [("r", 2), ("s", None)]
    behind, absent = told.drafters["dflash2"], told.drafters["mtp"]
    assert behind == DrafterCondition(catch_up_s=50 * found.prefill_s)
    assert not absent.is_loaded
    assert round(absent.sync_s, 9) == 0.003
    assert not seen.look(engine).steps


def test_a_request_is_told_with_its_own_grades_and_only_its_newest_ones():
    history, request = RequestHistory(), Decoding("r")

    def after(num_drafted: int, num_accepted: int):
        nonlocal request
        request = replace(
            request,
            num_drafted=request.num_drafted + num_drafted,
            num_accepted=request.num_accepted + num_accepted,
        )
        history.see([request])
        (told,) = history.signals([request])
        return told.num_graded, told.num_accepted, told.num_steps_ungraded

    assert after(5, 5) == (0, 0, 0)
    # Two were right and the third was not: of the other two nothing is known.
    assert after(5, 2) == (3, 2, 0)
    assert after(0, 0) == (3, 2, 1)
    assert after(60, 60) == (63, 62, 0)
    assert after(3, 3) == (33, 32, 0)
    history.see([])
    assert after(4, 4) == (0, 0, 0)


def test_what_memory_makes_the_policy_give_up_is_what_the_engine_releases():
    residency = {"dflash2": Residency.NO_WEIGHTS, "mtp": Residency.NO_CONTEXT}
    released = {"dflash2": Release.WEIGHTS, "mtp": Release.CONTEXT}
    assert draft_plan(Plan(PLAIN_ARM, residency=residency)) == DraftPlan(released=released)


def test_of_long_steps_four_are_waited_for():
    now_s = [0.0]
    times = times_from(measured(), LADDER)
    seen = Observation(times, replace(SOURCES, clock=lambda: now_s[0]))
    engine = PlanSignals(EngineCounts(2, 0, 30, 10, 0, 100), ROWS, StepStats())
    seen.see(engine, PLAIN_ARM)
    seen.look(engine)
    looks = []
    for _ in range(5):
        now_s[0] += 2.0
        looks.append(seen.see(replace(engine, last=StepStats(num_decoding=2)), PLAIN_ARM))
    assert looks == [False, False, False, True, True]

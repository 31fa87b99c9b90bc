"""The policy as the engine's planner: what it is told, how it is obeyed, and what it survives."""

from dataclasses import replace

import pytest

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.made_up_times import step_times
from deployments import control
from deployments.control import PolicyPlanner
from deployments.engine_plan import draft_plan
from deployments.observation import Sources, Surroundings, sample_of
from dflash.plan import PLAIN, Arm, Decoding, DraftPlan, PlanSignals, Release
from dflash.request import GenerateRequest, SamplingParams
from dflash.stats import DrafterStats, EngineCounts, Grades, StepStats
from policy.arms import Arm as PolicyArm
from policy.decision import Plan, Residency
from policy.limits import Limits
from policy.pins import Pin
from policy.readings import MemoryReading
from policy.reasons import Reason

COUNTS = EngineCounts(2, 3, 30, 10, 0, 100)
NO_NEED = {"dflash2": 0, "mtp": 0}


class Clock:
    """Time that a test moves."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def stats(rows=1, **values) -> StepStats:
    return StepStats(num_decoding=rows, step_time_s=0.01, num_emitted_tokens=rows, **values)


def decoding(count: int, **values) -> tuple[Decoding, ...]:
    return tuple(Decoding(f"r{index}", 20, **values) for index in range(count))


def signals(rows: tuple[Decoding, ...], last: StepStats, **values) -> PlanSignals:
    values = {"counts": COUNTS, "num_behind": NO_NEED, "max_num_seqs": 8, **values}
    return PlanSignals(decoding=rows, last=last, **values)


def drive_steps(
    planner: PolicyPlanner, clock: Clock, count: int, rows: int = 1, step_s: float = 0.03
) -> DraftPlan:
    """Let steps go by in which a drafter's tokens are all right."""
    plan = planner.plan(signals(decoding(rows), StepStats()))
    for _ in range(count):
        clock.now_s += step_s
        did = {}
        if plan.arm != PLAIN:
            length, graded = plan.arm.draft_length, (rows,) * plan.arm.draft_length
            did = {
                plan.arm.drafter: DrafterStats(
                    rows, rows * length, rows * length, Grades(graded, graded)
                )
            }
        last = stats(rows, by_drafter=did)
        plan = planner.plan(signals(decoding(rows), last))
    return plan


def made(clock: Clock | None = None, **options) -> PolicyPlanner:
    sources = Sources(replica="a", clock=clock or Clock(), draw=lambda: 0.5)
    return PolicyPlanner(step_times(), sources=sources, **options)


def test_it_begins_plainly_and_drafts_as_soon_as_it_may():
    clock, seen = Clock(), []
    planner = made(clock, on_decision=seen.append)
    first = planner.plan(signals(decoding(1), StepStats()))
    assert first == DraftPlan()
    later = drive_steps(planner, clock, 40)
    assert later.arm == Arm("dflash2", 7)
    assert later.warm >= {"dflash2"}
    assert planner.num_errors == 0
    assert {made.decision.reason for made in seen} >= {Reason.CONFIRMING, Reason.FASTER}


def test_between_two_decisions_the_plan_stands():
    clock, seen = Clock(), []
    planner = made(clock, on_decision=seen.append)
    drive_steps(planner, clock, 8, step_s=0.03)
    assert [len(made.signals.steps) for made in seen] == [4, 4]
    # Once there is no reason for a change it looks less often, until others decode.
    drive_steps(planner, clock, 200, step_s=0.03)
    assert seen[-1].decision.reason is Reason.STEADY
    assert len(seen[-1].signals.steps) == 9
    count = len(seen)
    drive_steps(planner, clock, 6, rows=2, step_s=0.03)
    assert len(seen[count].signals.steps) < 9


def test_short_steps_are_looked_at_no_more_often_than_a_look_is_worth():
    clock, seen = Clock(), []
    planner = made(clock, on_decision=seen.append)
    drive_steps(planner, clock, 16, step_s=0.013)
    assert [len(made.signals.steps) for made in seen] == [8, 8]


def test_requests_that_come_while_nothing_runs_are_planned_for_before_their_prompts():
    clock, seen = Clock(), []
    planner = made(clock, on_decision=seen.append)
    counts = replace(COUNTS, num_running=0, num_waiting=3)
    plan = planner.plan(signals((), StepStats(), counts=counts))
    assert plan.arm.drafter == "dflash2"
    assert "dflash2" in plan.warm
    assert [made.decision.reason for made in seen] == [Reason.FASTER]


@pytest.mark.parametrize(
    ("rows", "last"), [(12, stats(1)), (1, stats(1, num_preempted=1))], ids=["jump", "preemption"]
)
def test_what_happens_suddenly_is_looked_at_at_once(rows, last):
    clock, seen = Clock(), []
    planner = made(clock, on_decision=seen.append)
    drive_steps(planner, clock, 4)
    count = len(seen)
    planner.plan(signals(decoding(rows), last))
    assert len(seen) == count + 1


def test_a_step_is_told_as_it_was():
    grades = Grades((4, 2), (3, 1), (0, 1, 1), (0, 1, 0))
    last = stats(
        4,
        by_drafter={"mtp": DrafterStats(3, 9, 4, grades, num_faults=1), "dflash2": DrafterStats()},
        num_prefill_tokens=50,
        num_catch_up_tokens=7,
        num_preempted=2,
    )
    sample = sample_of(last, PolicyArm("mtp", 3), 77)
    assert (sample.num_draft_tokens, sample.num_other_tokens) == (9, 57)
    assert (sample.graded, sample.accepted) == ((4, 3, 1), (3, 2, 0))
    assert (sample.num_context_tokens, sample.num_preempted, sample.has_drafter_fault) == (
        77,
        2,
        True,
    )
    assert sample_of(last, PolicyArm(), 77).graded == ()
    assert [sample_of(last, PolicyArm(name, 3), 77).is_mixed for name in ("mtp", "dflash2")] == [
        False,
        True,
    ]


def test_a_plan_of_the_policy_becomes_one_of_the_engine():
    plan = Plan(
        PolicyArm("dflash2", 5),
        by_request={"a": 0, "b": 3},
        num_graded=1,
        residency={"dflash2": Residency.WARM, "mtp": Residency.COLD},
    )
    assert draft_plan(plan) == DraftPlan(
        Arm("dflash2", 5),
        by_request={"a": PLAIN, "b": Arm("dflash2", 3)},
        warm=frozenset({"dflash2"}),
        num_graded=1,
    )
    for before, expected in ((PolicyArm("mtp", 2), Arm("mtp", 2)), (PolicyArm(), PLAIN)):
        both = {**plan.residency, "mtp": Residency.WARM}
        taking_over = draft_plan(replace(plan, taking_over=before, residency=both))
        assert (taking_over.taking_over, taking_over.warm) == (expected, {"dflash2", "mtp"})
    kept = replace(plan, arm=PolicyArm(), by_request={}, num_graded=0)
    assert draft_plan(kept) == DraftPlan(warm=frozenset({"dflash2"}))


def test_in_a_trial_only_a_few_draft_whoever_comes_meanwhile(monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    planner = made(clock, surroundings=Surroundings(Limits(probe_gap_s=0.1)))
    drive_steps(planner, clock, 600, rows=6)
    planner._decision = replace(
        planner.decision, plan=Plan(PolicyArm("mtp", 2), num_drafting=4, num_graded=4)
    )
    planner._draft_plan = draft_plan(planner.decision.plan)
    monkeypatch.setattr(planner._observation, "see", lambda *_, **__: False)
    plan = planner.plan(signals(decoding(9), planner._observation._last))
    lengths = [plan.arm_for(f"r{index}").draft_length for index in range(9)]
    assert lengths == [2, 2, 2, 2, 0, 0, 0, 0, 0]
    assert plan.followed == {"r0", "r1", "r2", "r3"}


def test_a_decision_that_fails_leaves_the_plan_before_it(monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    planner = made(clock)
    before = drive_steps(planner, clock, 40)
    assert before.arm != PLAIN

    def fails(*_):
        raise ZeroDivisionError("an empty survival")

    monkeypatch.setattr(control, "decide", fails)
    assert drive_steps(planner, clock, 18) == before
    assert planner.num_errors == 2
    assert planner.last_error == "ZeroDivisionError: an empty survival"


def test_limits_change_between_two_steps_and_what_was_learnt_stays():
    clock = Clock()
    planner = made(clock)
    drive_steps(planner, clock, 80, rows=3)
    learnt = planner.decision.state.survival_of("dflash2")
    planner.surroundings = Surroundings(Limits({"dflash2": 2, "mtp": 2}))
    plan = drive_steps(planner, clock, 4, rows=3)
    assert plan.arm == PLAIN
    assert planner.decision.reason is Reason.CONCURRENCY_LIMIT
    assert planner.decision.state.survival_of("dflash2").graded >= learnt.graded


def test_limits_that_do_not_fit_the_drafters_change_nothing():
    clock = Clock()
    planner = made(clock)
    before = drive_steps(planner, clock, 40)
    planner.surroundings = Surroundings(Limits({"eagle": 2}))
    assert drive_steps(planner, clock, 4) == before
    assert "eagle" in (planner.last_error or "")


def test_a_pin_holds_until_it_expires():
    clock = Clock()
    planner = made(clock)
    pin = Pin(PolicyArm("mtp", 2), ("*",), "ada", "a comparison", expires_s=clock.now_s + 1.0)
    planner.surroundings = Surroundings(pins=(pin,))
    assert drive_steps(planner, clock, 20).arm == Arm("mtp", 2)
    assert planner.decision.reason is Reason.PINNED
    clock.now_s += 2.0
    drive_steps(planner, clock, 8)
    assert planner.decision.reason is not Reason.PINNED


def test_off_is_off_for_every_drafter_and_a_ceiling_is_kept():
    clock = Clock()
    planner = made(clock)
    drive_steps(planner, clock, 60, rows=3)
    mixed = (Decoding("a", 20, 0), Decoding("b", 20, 2), Decoding("c", 20))
    for _ in range(9):
        clock.now_s += 0.03
        plan = planner.plan(signals(mixed, stats(3)))
    assert plan.arm_for("a") == PLAIN
    assert plan.arm_for("b").draft_length <= 2


def test_the_engine_gives_the_same_ids_whatever_the_policy_does():
    def answers(planner: PolicyPlanner | None) -> list[tuple[int, ...]]:
        script = {name: lambda row, right: right for name in ("dflash2", "mtp")}
        drive = Drive(script=script, planner=planner)
        requests = [
            GenerateRequest(str(seed), (1, 2, 3 + seed), 40, SamplingParams(), seed=seed)
            for seed in range(6)
        ]
        drive.submit(*requests)
        drive.finish()
        return [drive.answer(request.request_id).token_ids for request in requests]

    planner = made()
    assert answers(planner) == answers(None)
    assert planner.num_errors == 0


def test_its_status_says_what_runs_and_up_to_where_it_would_pay():
    clock = Clock()
    limits = Limits({"dflash2": 2})
    planner = made(clock, surroundings=Surroundings(limits))
    drive_steps(planner, clock, 60, rows=2)
    status = planner.status()
    assert (status.arm, status.pinned_by, status.num_errors) == ("dflash2:7", None, 0)
    # Its drafts were all right: it pays at every load that was measured. Of mtp nothing is known.
    assert status.break_even["dflash2"] == 16
    assert status.unmeasured == ("mtp",)
    assert status.max_concurrency == {"dflash2": 2}
    assert status.taking_over is None
    begun = Plan(PolicyArm("mtp", 2), taking_over=PolicyArm())
    planner._decision = replace(planner.decision, plan=begun)
    assert planner.status().taking_over == "plain"


def test_while_nothing_runs_it_looks_each_second_and_gives_back_what_must_be():
    clock, short = Clock(), [MemoryReading(1000, 900, None)]
    sources = Sources(reading=lambda: short[0], clock=clock, draw=lambda: 0.5)
    seen = []
    planner = PolicyPlanner(step_times(), sources=sources, on_decision=seen.append)
    idle = PlanSignals(EngineCounts(0, 0, 0, 0, 0, 100), (), StepStats(), NO_NEED)
    for _ in range(20):
        clock.now_s += 0.3
        planner.plan(idle)
    # Each second, told of every 0.3 s.
    assert len(seen) == 5
    short[0] = MemoryReading(1000, 0, None)
    for _ in range(120):
        clock.now_s += 1.0
        plan = planner.plan(idle)
    assert plan.released == dict.fromkeys(("dflash2", "mtp"), Release.WEIGHTS)
    assert planner.status().release == "weights"

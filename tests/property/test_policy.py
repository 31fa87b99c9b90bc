"""Whatever is measured: decisions replay, wait, recover, and never mind one spike."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.arms import PLAIN, PLAIN_ARM, Ladder, Rungs
from policy.controller import decide
from policy.decision import Decision, first_decision
from policy.governor import Governor, Pressure
from policy.json_form import as_json, from_json
from policy.limits import Limits, MemoryLimits
from policy.readings import MemoryReading, MemoryTrouble
from policy.signals import DrafterCondition, PoolSignal, RequestSignal, Signals
from tests.rigs.policy_world import FORCED, World, spiked, terms

CHANCES = st.fixed_dictionaries({"dflash2": st.floats(0.0, 1.0), "mtp": st.floats(0.0, 1.0)})
ROWS = st.sampled_from([0, 1, 3, 8, 20, 64])
READINGS = st.one_of(
    st.builds(
        lambda free: MemoryReading(1000, free, None, is_throttled=free % 2 == 0),
        st.integers(0, 1000),
    ),
    st.builds(lambda trouble: MemoryReading(trouble=trouble), st.sampled_from(MemoryTrouble)),
)
# The dear ones are those that a drafter begins with newcomers for.
CATCH_UP_S = st.floats(0.0, 1.0) | st.floats(5.0, 60.0)
SURROUNDINGS = st.fixed_dictionaries(
    {
        "num_waiting": st.integers(0, 40),
        "num_admissible": st.integers(0, 40),
        "pool": st.builds(PoolSignal, st.just(100), st.integers(0, 100)),
        "reading": READINGS,
        "requests": st.lists(
            st.builds(
                RequestSignal,
                st.sampled_from("abcd"),
                st.none() | st.integers(0, 8),
                num_graded=st.integers(50, 99),
                num_accepted=st.integers(0, 50),
            ),
            max_size=4,
        ).map(tuple),
        "drafters": st.dictionaries(
            st.sampled_from(["dflash2", "mtp"]),
            st.builds(DrafterCondition, st.booleans(), CATCH_UP_S, st.floats(0.0, 0.01)),
        ),
    }
)
EPISODES = st.lists(st.tuples(CHANCES, ROWS, SURROUNDINGS), min_size=1, max_size=6)
LIMITS = st.builds(
    Limits,
    max_concurrency=st.sampled_from([{}, {"dflash2": 4}, {"dflash2": 8, "mtp": 20}]),
    max_draft_length=st.sampled_from([None, 4]),
    dwell_s=st.floats(0.2, 2.0),
)
FEW = settings(max_examples=20, deadline=None)


def lived(episodes, limits: Limits, seed: int = 0) -> World:
    """Return a world that went through the episodes, a second each."""
    return live(World(terms(limits), {}, seed), episodes)


def live(world: World, episodes) -> World:
    for chances, rows, surroundings in episodes:
        world.chances.update(chances)
        world.run(1.0, rows, **surroundings)
    return world


@FEW
@given(EPISODES, LIMITS, st.integers(0, 9))
def test_the_same_signals_give_the_same_decisions_to_the_bit(episodes, limits, seed):
    world = lived(episodes, limits, seed)
    last = first_decision(world.terms, 0.0)
    for signals, decision in zip(world.signals, world.decisions, strict=True):
        last = decide(last, from_json(Signals, as_json(signals)), world.terms)
        assert last == decision
    assert from_json(Decision, as_json(last)) == last


@FEW
@given(EPISODES, LIMITS, st.integers(0, 9))
def test_a_change_of_drafter_that_nothing_forces_waits_for_the_dwell(episodes, limits, seed):
    world = lived(episodes, limits, seed)
    changed_s, drafter = None, PLAIN
    for decision in world.decisions:
        now = decision.state.home_of(decision.plan.arm).drafter
        if now == drafter:
            continue
        if changed_s is not None and decision.reason not in FORCED:
            assert decision.at_s - changed_s >= limits.dwell_s
        changed_s, drafter = decision.at_s, now


@FEW
@given(EPISODES, LIMITS)
def test_no_plan_breaks_a_ceiling_or_a_limit(episodes, limits):
    world = lived(episodes, limits)
    for decision, signals in zip(world.decisions, world.signals, strict=True):
        arm, plan = decision.plan.arm, decision.plan
        if arm.is_plain:
            assert not plan.by_request
            continue
        for each in {arm, plan.taking_over or arm} - {PLAIN_ARM}:
            most = limits.max_concurrency.get(each.drafter)
            assert most is None or signals.num_decoding <= most
            assert limits.max_draft_length is None or each.draft_length <= limits.max_draft_length
            assert signals.condition_of(each.drafter).is_loaded
        for request in signals.requests:
            length = plan.by_request.get(request.request_id, arm.draft_length)
            named_alike = [
                r.ceiling for r in signals.requests if r.request_id == request.request_id
            ]
            assert None in named_alike or length <= max(c for c in named_alike if c is not None)


# The longest gap between probes with its tenth of chance, the purse paid from its deepest debt at
# the time one probe costs at most, and the probe, the dwell and two looks themselves.
HEALED_WITHIN_S = 30.0 * 1.1 + 2 * 0.5 / 0.02 + 10.0


@settings(max_examples=5, deadline=None)
@given(EPISODES, st.integers(0, 9))
def test_from_any_state_a_healed_drafter_is_in_use_again(episodes, seed):
    limits = Limits(exploration_share=0.02)
    only = Ladder((Rungs("dflash2", (1, 3, 5, 7)),))
    world = World(terms(limits, only), {}, seed)
    live(world, episodes)
    # Broken for long enough that every gap is at its longest.
    world.chances["dflash2"] = 0.0
    world.run(60.0, 8)
    assert world.decision.state.home_of(world.decision.plan.arm).is_plain
    world.chances["dflash2"] = 0.95
    healed_s = world.now_s
    while world.decision.state.home_of(world.decision.plan.arm).is_plain:
        assert world.now_s - healed_s < HEALED_WITHIN_S
        world.run(1.0, 8)


@FEW
@given(EPISODES, LIMITS, st.data())
def test_one_spike_changes_nothing_that_is_decided(episodes, limits, data):
    world = lived(episodes, limits)
    at = data.draw(st.integers(0, len(world.signals) - 1))
    if not world.signals[at].steps:
        return
    index = data.draw(st.integers(0, 3))
    before = world.decisions[at - 1] if at else first_decision(world.terms, 0.0)
    spiky = decide(before, spiked(world.signals[at], index, 10.0), world.terms)
    # A time that is not known teaches nothing, and a spike exactly as much.
    unknown = decide(before, spiked(world.signals[at], index, 0.0), world.terms)
    assert without_counts(spiky) == without_counts(unknown)
    # What it would have taught otherwise is a hundredth of a hundredth.
    usual = {worth.arm: worth for worth in world.decisions[at].scores}
    for worth in spiky.scores:
        assert worth.value == pytest.approx(usual[worth.arm].value, rel=0.02)


def without_counts(decision: Decision) -> Decision:
    """Return a decision but for how many spikes were seen."""
    corrections = replace(decision.state.corrections, num_spikes=0, num_rejected=0)
    return replace(decision, state=replace(decision.state, corrections=corrections))


LEVELS = st.tuples(st.floats(0.0, 1.0), st.integers(0, 3), st.floats(0.0, 0.1))


def pressure(of: tuple[float, int, float]) -> Pressure:
    occupancy, preempted, free = of
    return Pressure(occupancy, preempted, MemoryReading(10**9, int(free * 10**9), None))


@settings(max_examples=300)
@given(st.lists(LEVELS, max_size=8), LEVELS, LEVELS, st.floats(0.1, 100.0))
def test_more_pressure_never_gives_back_more(history, one, other, later_s):
    governor, now_s = Governor(), 0.0
    for level in history:
        now_s += 7.0
        governor = governor.after(pressure(level), MemoryLimits(), now_s)
    less = tuple(map(min, zip(one, other, strict=True)))
    more = tuple(map(max, zip(one, other, strict=True)))
    # Free memory falls with pressure.
    calm = pressure((*less[:2], more[2]))
    tight = pressure((*more[:2], less[2]))
    at_s = now_s + later_s
    calmer = governor.after(calm, MemoryLimits(), at_s)
    tighter = governor.after(tight, MemoryLimits(), at_s)
    assert calmer.release <= tighter.release


@FEW
@given(EPISODES, LIMITS, st.integers(0, 100), st.integers(0, 100))
def test_less_memory_never_means_a_heavier_arm(episodes, limits, one, other):
    world = lived(episodes, limits)
    signals = replace(
        world.signals[-1],
        now_s=world.now_s + 0.1,
        num_decoding=8,
        num_waiting=1,
        reading=MemoryReading(trouble=MemoryTrouble.ABSENT),
    )
    arms = [
        decide(
            world.decision, replace(signals, pool=PoolSignal(100, used, 16)), world.terms
        ).plan.arm
        for used in (min(one, other), max(one, other))
    ]
    weights = {PLAIN: 0, "mtp": 1, "dflash2": 2}
    if arms[0].drafter == arms[1].drafter:
        assert arms[1].draft_length <= arms[0].draft_length
    else:
        assert weights[arms[1].drafter] <= weights[arms[0].drafter]

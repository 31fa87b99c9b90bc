"""What operators and clients ask for: limits, pins, ceilings; and what the log keeps of it."""

import json

import pytest

from policy.arms import Arm, Ladder, Rungs
from policy.controller import decide
from policy.decision import Decision, first_decision
from policy.errors import PolicyError
from policy.goodput import Prices
from policy.json_form import as_json, from_json
from policy.lengths import lengths_by_request
from policy.limits import Limits, MemoryLimits
from policy.log import DecisionLog, entry_of
from policy.pins import Pin, pin_in_force
from policy.reasons import Reason
from policy.signals import PoolSignal, RequestSignal, Signals
from policy.survival import Survival
from policy.terms import Terms
from tests.rigs.policy_world import LADDER, World, terms


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dwell_s": 0.0}, "policy.dwell_s must be over 0"),
        ({"dwell_s": float("nan")}, "policy.dwell_s"),
        ({"exploration_share": 0.5}, "policy.exploration_share must be over 0 and at most 0.2"),
        ({"max_concurrency": {"dflash2": -1}}, "policy.max_concurrency.dflash2"),
        ({"max_draft_length": -1}, "policy.max_draft_length"),
        ({"probe_gap_s": 90.0}, "policy.probe_gap_max_s is 30"),
    ],
)
def test_a_limit_that_cannot_work_is_refused_by_name(wrong, message):
    with pytest.raises(PolicyError, match=message):
        Limits(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"amber_occupancy": 0.7},
        {"red_free_fraction": 0.5},
        {"amber_free_fraction": 0.5},
        {"amber_occupancy": 1.5},
        {"restore_s": 0.0},
    ],
)
def test_thresholds_that_would_flutter_are_refused(wrong):
    with pytest.raises(PolicyError, match=r"policy\.memory\."):
        MemoryLimits(**wrong)


@pytest.mark.parametrize(
    ("most", "message"),
    [
        ({"eagle": 4}, "names 'eagle'"),
        ({"dflash2": 8, "mtp": 4}, "raise it to 8 or more"),
    ],
)
def test_limits_that_contradict_the_ladder_are_refused(most, message):
    with pytest.raises(PolicyError, match=message):
        terms(Limits(most))


def test_a_ladder_names_each_drafter_once_and_its_rungs_ascend():
    with pytest.raises(PolicyError, match="once"):
        Ladder((Rungs("mtp", (1,)), Rungs("mtp", (2,))))
    with pytest.raises(PolicyError, match="ascend"):
        Rungs("mtp", (3, 1))
    with pytest.raises(PolicyError, match="0"):
        Arm("mtp", 0)


PIN = Pin(Arm("mtp", 2), ("a",), "ops", "comparing", 100.0)


@pytest.mark.parametrize(
    ("pin", "message"),
    [
        (Pin(Arm("mtp", 4), ("a",), "ops", "why", 100.0), "rung"),
        (Pin(Arm("eagle", 1), ("a",), "ops", "why", 100.0), "'eagle' is not here"),
        (Pin(Arm(), ("z",), "ops", "why", 100.0), "names 'z'"),
        (Pin(Arm(), ("*",), "ops", "why", 5.0), "already"),
    ],
)
def test_a_pin_for_what_is_not_there_is_refused(pin, message):
    with pytest.raises(PolicyError, match=message):
        pin.check(LADDER, ["a", "b"], 10.0)


def test_a_pin_says_who_and_why_and_ends():
    PIN.check(LADDER, ["a", "b"], 10.0)
    with pytest.raises(PolicyError, match=r"pin\.author"):
        Pin(Arm(), ("*",), "", "why", 100.0)
    everywhere = Pin(Arm(), ("*",), "ops", "incident", 50.0)
    assert pin_in_force([everywhere, PIN], "a", 10.0) is PIN
    assert pin_in_force([everywhere, PIN], "b", 10.0) is everywhere
    assert pin_in_force([everywhere, PIN], "b", 60.0) is None


SURVIVAL = Survival((400.0,) * 7, (320.0,) * 7)


def lengths(*requests: RequestSignal, limits=None, ladder=LADDER):
    here = terms(limits, ladder)
    state = first_decision(here, 0.0).state
    prices = Prices(here.costs, state.corrections, 0.0)
    signals = Signals(0.0, num_decoding=32, requests=requests)
    arm = Arm("dflash2", 3)
    return lengths_by_request(arm, SURVIVAL.outlook(7), SURVIVAL, prices, signals, here)


def test_a_request_whose_drafts_are_kept_goes_wider_and_one_whose_are_not_stops():
    found = lengths(
        RequestSignal("good", num_graded=200, num_accepted=199),
        RequestSignal("usual", num_graded=200, num_accepted=160),
        RequestSignal("bad", num_graded=200, num_accepted=5),
        RequestSignal("new", num_graded=3, num_accepted=0),
    )
    assert found["good"] == 7
    assert found["bad"] == 0
    assert "new" not in found


def test_a_request_at_0_is_tried_again_when_its_history_is_old():
    for num_steps, is_stopped in ((0, True), (64 * 4, False)):
        bad = RequestSignal("bad", num_graded=200, num_accepted=5, num_steps_ungraded=num_steps)
        assert ("bad" in lengths(bad)) is is_stopped


def test_ceilings_of_requests_of_the_operator_and_of_the_drafter_bind():
    ladder = Ladder((Rungs("dflash2", (1, 3, 5, 7), max_context_tokens=4096),))
    requests = (
        RequestSignal("off", ceiling=0),
        RequestSignal("between rungs", ceiling=2),
        RequestSignal("long", num_context_tokens=5000),
        RequestSignal("free", num_graded=200, num_accepted=199),
    )
    found = lengths(*requests, ladder=ladder, limits=Limits(max_draft_length=5))
    assert found == {"off": 0, "between rungs": 1, "long": 0, "free": 5}


def run() -> World:
    here = World(terms(), {"dflash2": 0.9, "mtp": 0.8})
    here.run(5.0, rows=2, requests=(RequestSignal("a", 1, 10, 20, 15, 1), RequestSignal("b")))
    here.run(5.0, rows=40, pool=PoolSignal(100, 99), num_waiting=3, num_admissible=2, pin=PIN)
    here.run(5.0, rows=1)
    return here


def test_decisions_signals_and_terms_read_back_as_they_were():
    here = run()
    for decision in here.decisions:
        assert from_json(Decision, as_json(decision)) == decision
    for signals in here.signals:
        assert from_json(Signals, as_json(signals)) == signals
    assert from_json(Terms, as_json(here.terms)) == here.terms


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"now_s": "soon"}', '{"now_s": 1.0, "what": 2}', '{"now_s": true}']
)
def test_a_line_that_is_no_signals_is_refused_with_the_line(text):
    with pytest.raises(PolicyError, match="no Signals"):
        from_json(Signals, text)


def test_the_log_keeps_changes_with_their_scores_and_is_bounded():
    here, log = run(), DecisionLog(most=5)
    last, entries = first_decision(here.terms, 0.0), []
    for decision, signals in zip(here.decisions, here.signals, strict=True):
        entry = entry_of(last, decision, signals)
        if entry is not None:
            entries.append(entry)
            log.add(entry)
        last = decision
    assert 5 < len(entries) < len(here.decisions) / 4
    assert log.entries() == tuple(entries[-5:])
    assert {entry.author for entry in entries if entry.reason is Reason.PINNED} <= {"ops"}
    for line in log.lines():
        assert json.loads(line)["scores"][0]["value"] > 0


def test_a_reload_keeps_what_was_learnt():
    here = run()
    here.run(20.0, rows=1)
    stricter = terms(Limits({"dflash2": 0, "mtp": 0}))
    signals = Signals(here.now_s, num_decoding=1)
    decision = decide(here.decision, signals, stricter)
    assert decision.plan.arm.is_plain
    assert decision.reason is Reason.CONCURRENCY_LIMIT
    assert decision.state.survivals == here.decision.state.survivals

"""Recorded decisions: made again they are the same to the bit, or the first other one is named."""

from dataclasses import replace

import pytest

from policy.decision import first_decision
from policy.errors import PolicyError
from policy.header import VERSION, FileKind, Header
from policy.json_form import as_json
from policy.limits import Limits
from policy.recording import Start, recorded, replay
from policy.signals import RequestSignal
from policy.terms import Terms
from tests.rigs.policy_world import World, terms

HEADER = Header(FileKind.SIGNALS, VERSION, "a", 1.7e9).line()


def world() -> World:
    here = World(terms(), {"dflash2": 0.9, "mtp": 0.8})
    here.run(5.0, rows=2, requests=(RequestSignal("a", 1, 10, 20, 15, 1), RequestSignal("b")))
    here.run(5.0, rows=40, num_waiting=3, num_admissible=2)
    return here


def lines_of(here: World, begin: int = 0) -> list[str]:
    """Return the lines of a file that begins at a decision."""
    last = here.decisions[begin - 1] if begin else first_decision(here.terms, 0.0)
    made = zip(here.signals[begin:], here.decisions[begin:], strict=True)
    values = [Start(here.terms, last), *(recorded(*each) for each in made)]
    return [HEADER, *(as_json(value) + "\n" for value in values)]


@pytest.mark.parametrize("begin", [0, 1, 40])
def test_decisions_made_again_are_the_same_from_the_first_and_from_the_middle(begin):
    here = world()
    again = list(replay(lines_of(here, begin)))
    assert [made.decision for made in again] == here.decisions[begin:]
    assert all(made.is_same for made in again)


def test_a_reload_in_between_is_replayed_under_its_own_terms():
    here = world()
    lines = lines_of(here)
    here.terms = terms(Limits({"dflash2": 0, "mtp": 0}))
    before, begin = here.decision, len(here.decisions)
    here.run(2.0, rows=1)
    lines.append(as_json(Start(here.terms, before)))
    made = zip(here.signals[begin:], here.decisions[begin:], strict=True)
    lines += [as_json(recorded(*each)) for each in made]
    again = list(replay(lines))
    assert again[-1].decision.plan.arm.is_plain
    assert all(each.is_same for each in again)


def test_a_plan_that_differs_and_a_memory_that_differs_are_both_seen():
    here = world()
    lines = lines_of(here)
    other = replace(here.signals[60], num_decoding=64)
    lines[62] = as_json(recorded(other, here.decisions[60])) + "\n"
    steps = list(here.signals[20].steps)
    steps[0] = replace(steps[0], step_time_s=steps[0].step_time_s * (1.0 + 1e-15))
    slower = replace(here.signals[20], steps=tuple(steps))
    assert slower != here.signals[20]
    lines[22] = as_json(recorded(slower, here.decisions[20])) + "\n"
    different = [made.line for made in replay(lines) if not made.is_same]
    # One unit in the last place of one step's time, and all that was learnt from it.
    assert different[0] == 23
    assert 63 in different


def other_version() -> str:
    return as_json(replace(Header(FileKind.SIGNALS, VERSION, "a", 0.0), version=VERSION + 1))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "the file is empty; give one"),
        (["not json\n"], "line 1: 'not json' is no header of a dflash-signals file; give a whole"),
        (["[1]\n"], "line 1: .* is no header"),
        (['{"format":"other","version":1}\n'], "line 1: .* is no header"),
        ([other_version()], f"line 1: version {VERSION + 1} .* reads version {VERSION}; use the"),
        (
            [Header(FileKind.DECISIONS, VERSION, "a", 0.0).line()],
            "line 1: this is a dflash-decisions file; 'dflashctl explain' reads it",
        ),
        ([HEADER, "{\n"], "line 2: .*head -n 1"),
        ([HEADER, '{"terms":{}}\n'], "line 2: this line is no Start"),
        ([HEADER, "\n"], "line 2: this line is no Recorded"),
        ([HEADER, lines_of(world())[2]], "line 2: signals before any terms; give the file from"),
    ],
)
def test_a_file_that_cannot_be_replayed_is_refused_by_its_line(lines, message):
    with pytest.raises(PolicyError, match=message):
        list(replay(lines))


def test_terms_that_no_operator_could_have_set_are_refused():
    text = as_json(Start(world().terms, first_decision(terms(), 0.0)))
    wrong = text.replace('"dwell_s":2.0', '"dwell_s":-2.0')
    assert wrong != text
    with pytest.raises(PolicyError, match=r"line 2: policy\.dwell_s must be over 0"):
        list(replay([HEADER, wrong]))


def test_terms_with_a_table_of_another_model_are_refused():
    ladder = world().terms.ladder
    with pytest.raises(PolicyError, match="measure again"):
        Terms(ladder, replace(world().terms.costs, grids={"plain": terms().costs.grids["plain"]}))

"""How often the policy may change its mind, what it may lose, and that nobody waits for it."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.random_requests import RandomRequests
from benchmarks.rigs.script_drafter import random_wrong
from benchmarks.rigs.unquiet_policy import UnquietPolicy
from benchmarks.simulate.baselines import Law
from benchmarks.simulate.h200 import LADDER, PUBLISHED
from benchmarks.simulate.score import interval_values
from policy.limits import Limits
from policy.simulate import Simulation
from policy.terms import Terms
from policy.truth import Arrival, Truth
from tests.rigs.drafted import VOCAB, assert_right, limits
from tests.rigs.policy_world import FORCED, World, terms

MINUTE_S = 60.0


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("rows", [4, 20])
@pytest.mark.parametrize(("swing", "every_s"), [(0.3, 0.5), (1.0, 1.0), (0.5, 3.0)])
def test_acceptance_that_swings_around_a_pivot_makes_no_flutter(swing, every_s, rows, seed):
    """Two drafters take turns at being the better one, for a minute."""
    bounds = Limits()
    world, chances = World(terms(bounds), {}, seed), (0.5 + swing / 2, 0.5 - swing / 2)
    while world.now_s < MINUTE_S:
        world.chances = dict(zip(("dflash2", "mtp"), chances, strict=True))
        chances = chances[::-1]
        world.run(every_s, rows)
    homes = [decision.state.home_of(decision.plan.arm) for decision in world.decisions]
    changes = [
        later
        for (home, other), later in zip(pairwise(homes), world.decisions[1:], strict=True)
        if home.drafter != other.drafter
    ]
    assert len(changes) <= MINUTE_S / bounds.dwell_s
    for change, later in pairwise(changes):
        assert later.reason in FORCED or later.at_s - change.at_s >= bounds.dwell_s


@pytest.mark.parametrize("rows", [16, 48, 63])
@pytest.mark.parametrize("chance", [0.0, 0.3, 0.6, 0.85])
def test_load_that_rises_and_falls_costs_less_than_a_twentieth_of_plain(chance, rows):
    costs = PUBLISHED.table()
    chances = {"text": {"dflash2": chance, "mtp": chance}}
    truth = Truth(LADDER, costs, chances, noise=0.02, spike_share=0.0)
    lone = Arrival(0.0, 1, 1_000_000, "text")
    crowd = [Arrival(10.0, 1, 600, "text") for _ in range(rows)]
    simulation = Simulation([lone, *crowd], truth, Law(Terms(LADDER, costs)))
    simulation.run(45.0)
    assert max(tick.num_rows for tick in simulation.ticks) == rows + 1
    assert simulation.ticks[-1].num_rows == 1
    # In the first five seconds it learns what its drafters are worth, which may be nothing.
    assert min(interval_values(simulation.ticks)[1:]) >= 0.95
    if chance > 0.5:
        # It drafted before the crowd came, and does again.
        assert not simulation.ticks[-1].arm.is_plain


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1 << 20), st.integers(6, 40))
def test_whoever_decodes_gains_in_every_step_whatever_the_policy_does(seed, budget):
    """With pages for all: no drafts, prompts or catching up stand in a decoding request's way."""
    reach = {"dflash2": 7, "mtp": 4}
    drive = Drive(
        limits(4, budget),
        num_pages=400,
        script=dict.fromkeys(reach, random_wrong(0.3, VOCAB, seed)),
        planner=UnquietPolicy(reach, seed),
    )
    source = RandomRequests(seed, VOCAB)
    asked = [source.draw(f"r{index}") for index in range(12)]
    drive.submit(*asked)
    begun: set[str] = set()
    steps = 0
    while drive.engine.has_work:
        drive.step()
        steps += 1
        gained = {output.request_id for output in drive.results[-1].outputs}
        assert begun <= gained
        begun |= gained
        begun -= {o.request_id for o in drive.results[-1].outputs if o.finish_reason is not None}
    assert_right(drive, *asked)
    # Nobody waits for ever: half of the budget beside four decoding rows is a prompt's.
    prompts = sum(len(each.prompt_token_ids) for each in asked)
    assert steps <= 2 * prompts / (budget - 4) + sum(each.max_tokens for each in asked)

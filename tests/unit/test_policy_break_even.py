"""Up to how many requests a drafter pays: a load at which it does, and the next at which not."""

import pytest

from policy.arms import Arm
from policy.break_even import break_even, unmeasured
from policy.goodput import Load, Prices, drafting_worth
from tests.rigs.policy_world import LADDER, World, terms


@pytest.mark.parametrize("chance", [0.0, 0.3, 0.5, 0.9])
def test_at_the_break_even_it_pays_and_above_it_not(chance: float):
    world = World(terms(), dict.fromkeys(LADDER.names, chance))
    world.run(30.0, rows=8)
    state = world.decision.state
    found = break_even(state, world.terms, 0, world.now_s)
    prices = Prices(world.terms.costs, state.corrections, world.now_s)
    for rungs in LADDER.drafters:
        outlook = state.survival_of(rungs.drafter).outlook(rungs.draft_lengths[-1])

        def best(rows: int, rungs=rungs, outlook=outlook) -> float:
            arms = (Arm(rungs.drafter, length) for length in rungs.draft_lengths)
            return max(
                drafting_worth(arm, outlook, (), prices, Load(rows, 0, 0)).value for arm in arms
            )

        most = found[rungs.drafter]
        assert most == 0 or best(most) > 1.0
        assert all(best(rows) <= 1.0 for rows in range(most + 1, 65))


def test_what_no_grade_has_shown_is_said_to_be_a_belief():
    world = World(terms(), dict.fromkeys(LADDER.names, 0.9))
    assert unmeasured(world.decision.state, world.terms) == ("dflash2", "mtp")
    assert break_even(world.decision.state, world.terms, 0, 0.0)["dflash2"] > 0
    world.run(10.0, rows=1)
    assert "dflash2" not in unmeasured(world.decision.state, world.terms)

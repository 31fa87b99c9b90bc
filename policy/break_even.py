"""Up to how many requests a drafter pays, by what is known now."""

from policy.arms import PLAIN
from policy.goodput import Load, Prices, drafting_worth
from policy.state import State
from policy.terms import Terms


def break_even(state: State, terms: Terms, num_context_tokens: int, now_s: float) -> dict[str, int]:
    """Return the most requests at which each drafter's best arm is worth more than plain decoding.

    0 where it never is, and no more than were measured. It is what an operator compares
    ``policy.max_concurrency`` with.

    Args:
        state: What was learnt.
        terms: Drafters and step times.
        num_context_tokens: Mean tokens of a request.
        now_s: The time, seconds.
    """
    most = terms.costs.grids[PLAIN].rows[-1]
    prices = Prices(terms.costs, state.corrections, now_s)
    found = {}
    for rungs in terms.ladder.drafters:
        outlook = state.survival_of(rungs.drafter).outlook(rungs.draft_lengths[-1])
        arms = terms.ladder.arms_of(rungs.drafter, rungs.draft_lengths[-1])

        def pays(rows: int, arms=arms, outlook=outlook) -> bool:
            load = Load(rows, 0, num_context_tokens)
            return any(drafting_worth(arm, outlook, (), prices, load).value > 1.0 for arm in arms)

        paying = (rows for rows in range(most, 0, -1) if pays(rows))
        found[rungs.drafter] = next(paying, 0)
    return found


def unmeasured(state: State, terms: Terms) -> tuple[str, ...]:
    """Return the drafters none of whose drafts was graded: what is said of them is a belief."""
    return tuple(
        name for name in terms.ladder.names if state.survival_of(name).first_chance()[1] == 0.0
    )

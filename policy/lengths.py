"""Draft lengths of single requests, where they differ from the batch's."""

from bisect import bisect_right

from policy.arms import Arm
from policy.goodput import Load, Prices
from policy.signals import RequestSignal, Signals
from policy.survival import Outlook, Survival
from policy.terms import Terms

# With fewer grades of its own, a request is like all others.
_MIN_GRADES = 16.0
# What all others weigh against its own, in grades.
_PRIOR_GRADES = 16.0
# Its history counts half after so many steps without a grade: at draft length 0 there are none any
# more, and it would stay there for good.
_HALF_LIFE_STEPS = 64


def lengths_by_request(
    arm: Arm, outlook: Outlook, survival: Survival, prices: Prices, signals: Signals, terms: Terms
) -> dict[str, int]:
    """Return the draft lengths of requests that have to, or should, differ from an arm's.

    A draft token is worth verifying where its chance to be kept is at least the price of a place:
    the tokens that the time it adds to the step would have brought otherwise. A request's chance is
    its drafter's, scaled by how its own share of right tokens compares with everyone's.

    Args:
        arm: The batch's arm; not plain.
        outlook: What its drafter may be expected to bring.
        survival: The grades behind that.
        prices: Step times.
        signals: Has the requests.
        terms: Has the rungs.
    """
    rungs = terms.ladder.rungs_of(arm.drafter)
    price = _price(arm, outlook, prices, signals)
    usual = sum(survival.accepted) / max(1.0, sum(survival.graded))
    most = terms.limits.max_draft_length
    found = {}
    for request in signals.requests:
        length = _worthwhile(request, outlook, usual, price)
        length = arm.draft_length if length is None else length
        longest = rungs.max_context_tokens
        if longest is not None and request.num_context_tokens > longest:
            length = 0
        bounds = [bound for bound in (request.ceiling, most) if bound is not None]
        stair = bisect_right(rungs.draft_lengths, min([length, *bounds]))
        rung = rungs.draft_lengths[stair - 1] if stair else 0
        if rung != arm.draft_length:
            found[request.request_id] = rung
    return found


def _worthwhile(request: RequestSignal, outlook: Outlook, usual: float, price: float) -> int | None:
    """Return how many places of a request's own are worth their price; None if unknown."""
    age = 0.5 ** (request.num_steps_ungraded / _HALF_LIFE_STEPS)
    graded = request.num_graded * age
    if graded < _MIN_GRADES or usual == 0.0:
        return None
    share = (request.num_accepted * age + _PRIOR_GRADES * usual) / (graded + _PRIOR_GRADES)
    length, chance, before = 0, 1.0, 1.0
    for survival in outlook.survival:
        chance *= min(1.0, survival / before * share / usual)
        if chance < price:
            break
        length, before = length + 1, survival
    return length


def _price(arm: Arm, outlook: Outlook, prices: Prices, signals: Signals) -> float:
    """Return the chance a draft token needs: the step's tokens times its share of the step."""
    load = Load(max(1, signals.num_decoding), 0, signals.num_context_tokens)
    here = prices.seconds(arm, load, arm.draft_length)
    narrower = prices.seconds(arm, load, arm.draft_length - 1)
    return outlook.tokens(arm.draft_length) * max(0.0, here - narrower) / here

"""A plan of the policy as the engine takes it."""

from collections.abc import Sequence
from dataclasses import replace

from dflash.plan import PLAIN, Arm, Decoding, DraftPlan, Release
from policy.decision import Plan, Residency

_RELEASES = {Residency.NO_CONTEXT: Release.CONTEXT, Residency.NO_WEIGHTS: Release.WEIGHTS}


def draft_plan(plan: Plan) -> DraftPlan:
    """Return a plan of the policy as the engine takes it."""
    drafter = plan.arm.drafter
    warm = {name for name, kept in plan.residency.items() if kept is Residency.WARM}
    if not plan.arm.is_plain:
        warm.add(drafter)
    return DraftPlan(
        arm=_engine_arm(drafter, plan.arm.draft_length),
        by_request={
            request_id: _engine_arm(drafter, length)
            for request_id, length in plan.by_request.items()
        },
        warm=frozenset(warm),
        taking_over=_taking_over(plan),
        num_graded=plan.num_graded,
        released={
            name: _RELEASES[kept] for name, kept in plan.residency.items() if kept in _RELEASES
        },
    )


def _engine_arm(drafter: str, draft_length: int) -> Arm:
    return Arm(drafter, draft_length) if draft_length else PLAIN


def _taking_over(plan: Plan) -> Arm | None:
    before = plan.taking_over
    return None if before is None else _engine_arm(before.drafter, before.draft_length)


def thinned(plan: DraftPlan, decoding: Sequence[Decoding], num_drafting: int) -> DraftPlan:
    """Return a plan in which only the first few requests draft; nobody catches up with others."""
    names = [request.request_id for request in decoding]
    plainly = dict.fromkeys(names[num_drafting:], PLAIN)
    return replace(
        plan,
        by_request={**plan.by_request, **plainly},
        followed=frozenset(names[:num_drafting]),
    )

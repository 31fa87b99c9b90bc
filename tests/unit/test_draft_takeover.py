"""One drafter takes over from another, request by request: who drafts for whom."""

from collections.abc import Sequence

import pytest

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.script_drafter import all_right
from dflash.plan import PLAIN, Arm, DraftPlan
from dflash.request import GenerateRequest
from dflash.stats import WhyPlain
from tests.rigs.drafted import PREFIX, Plans, assert_right, limits, request, speculation, total

A, B = Arm("a", 3), Arm("b", 2)
BEFORE = DraftPlan(A, warm=frozenset({"a"}))
B_FROM_A = DraftPlan(B, warm=frozenset({"a", "b"}), taking_over=A)
B_FROM_PLAIN = DraftPlan(B, warm=frozenset({"b"}), taking_over=PLAIN)


def served(
    before: DraftPlan, after: DraftPlan, prompt: Sequence[int] | None = None
) -> tuple[Drive, list[GenerateRequest]]:
    """Return an engine that changed plans while one request ran, and another one came."""
    plans = Plans([*[before] * 4, after])
    drive = Drive(limits(4, 512), script={"a": all_right, "b": all_right}, planner=plans)
    old = request("old", PREFIX[:40], max_tokens=60)
    new = request("new", PREFIX[40:] if prompt is None else prompt, max_tokens=60)
    drive.submit(old)
    drive.step(4)
    drive.submit(new)
    drive.step(3)
    return drive, [old, new]


def asked_last(drive: Drive) -> dict[str, list[int]]:
    return {name: [row.seed for row in each.asked] for name, each in drive.drafters.items()}


def test_newcomers_draft_with_the_one_that_takes_over_and_the_others_go_on():
    drive, (old, new) = served(BEFORE, B_FROM_A)
    assert asked_last(drive) == {"a": [old.seed], "b": [new.seed]}
    # Nobody is begun with whom the other has: that would cost what the change is to save.
    running = drive.engine.scheduler._running
    contexts = [(s.followed_by["a"].num_context, s.followed_by["b"].num_context) for s in running]
    assert [(a > 20, b > 20) for a, b in contexts] == [(True, False), (False, True)]
    assert contexts[0][1] == contexts[1][0] == 0
    drive.finish()
    assert_right(drive, old, new)
    assert total(drive, "num_catch_up_tokens") == 0


def test_a_prefix_that_others_left_is_caught_up_with_while_the_prompt_is_computed():
    drive, (old, new) = served(BEFORE, B_FROM_A, prompt=PREFIX[:41])
    assert asked_last(drive) == {"a": [old.seed], "b": [new.seed]}
    assert total(drive, "num_catch_up_tokens") == 32
    drive.finish()
    assert_right(drive, old, new)
    assert total(drive, "num_catch_up_tokens") == 32


@pytest.mark.parametrize("after", [B_FROM_A, B_FROM_PLAIN])
def test_whom_neither_follows_decodes_plainly_by_the_plan(after):
    drive, (old, new) = served(DraftPlan(), after)
    drive.finish()
    assert_right(drive, old, new)
    assert total(drive, "num_catch_up_tokens") == 0
    assert set(speculation(drive, "old").num_plain) == {WhyPlain.PLAN}
    assert speculation(drive, "new").num_drafted > 0


def test_a_trial_of_plain_decoding_meanwhile_catches_up_with_nobody():
    drive, (old, new) = served(BEFORE, B_FROM_A)
    trial = DraftPlan(PLAIN, warm=frozenset({"a", "b"}), taking_over=A)
    drive.engine.set_planner(Plans([*[trial] * 4, B_FROM_A]))
    drive.step(5)
    assert asked_last(drive) == {"a": [old.seed], "b": [new.seed]}
    drive.finish()
    assert_right(drive, old, new)
    assert total(drive, "num_catch_up_tokens") == 0


def test_the_one_that_leaves_is_not_caught_up_with_a_prefix_that_it_lacks():
    drive, (old, new) = served(DraftPlan(B, warm=frozenset({"b"})), B_FROM_A, prompt=PREFIX[:41])
    assert asked_last(drive) == {"a": [], "b": [old.seed, new.seed]}
    drive.finish()
    assert_right(drive, old, new)
    assert total(drive, "num_catch_up_tokens") == 0


def test_what_is_taken_over_from_has_to_be_warm():
    with pytest.raises(ValueError, match="add 'a' to warm"):
        DraftPlan(B, warm=frozenset({"b"}), taking_over=A)

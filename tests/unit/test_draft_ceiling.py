"""What a request says about its own drafts holds, whoever plans and whoever drafts."""

import pytest

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.planners import RandomPlanner, full_width
from dflash.errors import RequestError
from dflash.plan import FixedPlanner
from dflash.request import GenerateRequest, SamplingParams
from dflash.stats import WhyPlain

REACH = {"dflash2": 7, "mtp": 3}


def asked(name: str, most: int | None, seed: int = 0) -> GenerateRequest:
    return GenerateRequest(name, (1, 2, 3), 40, SamplingParams(), seed, max_draft_length=most)


def right(_row, known):
    return known


@pytest.mark.parametrize("drafter", REACH)
def test_off_is_off_for_every_drafter_and_says_so(drafter: str):
    drive = Drive(
        script=dict.fromkeys(REACH, right), planner=FixedPlanner(full_width(drafter, REACH))
    )
    drive.submit(asked("off", 0), asked("on", None, seed=1))
    drive.finish()
    off, on = (drive.outputs[name][-1].speculation for name in ("off", "on"))
    assert off.num_drafted == 0
    assert set(off.num_plain) == {WhyPlain.REQUEST}
    assert on.num_drafted > 0


def test_a_ceiling_is_kept_by_every_plan_and_changes_no_id():
    def answer(most: int | None) -> tuple[int, ...]:
        drive = Drive(script=dict.fromkeys(REACH, right), planner=RandomPlanner(REACH, seed=3))
        drive.submit(asked("r", most))
        drive.finish()
        if most is not None:
            for result in drive.results:
                assert result.stats.num_draft_tokens <= most
        return drive.answer("r").token_ids

    assert answer(2) == answer(0) == answer(None)


@pytest.mark.parametrize("most", [-1, 1.5, "off"])
def test_a_ceiling_that_is_none_is_refused(most):
    with pytest.raises(RequestError, match=r"max_draft_length must be a whole number from 0"):
        asked("r", most)

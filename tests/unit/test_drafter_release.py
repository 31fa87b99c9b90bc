"""Memory of a drafter given back and had again: no id changes, and what is lost is caught up."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.script_drafter import SCRIPTED, ScriptDrafter, all_right, right_of
from benchmarks.rigs.serial import full_ids, serial_answer
from dflash import drafting
from dflash.drafters.held import HeldDrafter
from dflash.engine import Engine
from dflash.errors import CheckpointError, DrafterReleasedError
from dflash.kernels.arena import Arena
from dflash.plan import DraftPlan, PlanSignals, Release
from tests.rigs.drafted import PREFIX, Plans, assert_right, limits, request, total
from tests.rigs.drafted import drafting as plan_of

DRAFTING = plan_of(5)


def releasing(what: Release) -> DraftPlan:
    return DraftPlan(released={"script": what})


class Absences(Plans):
    """Plans one after the other, and what the engine said was absent."""

    def __init__(self, plans) -> None:
        super().__init__(plans)
        self.seen: list[frozenset[str]] = []

    def plan(self, signals: PlanSignals) -> DraftPlan:
        self.seen.append(signals.absent)
        return super().plan(signals)


@pytest.mark.parametrize("what", Release)
def test_a_context_that_was_given_back_is_caught_up_and_no_id_differs(what: Release):
    plans = [DRAFTING] * 6 + [releasing(what)] * 3 + [DRAFTING] * 60
    drive = Drive(limits(4, 512), script=all_right, planner=Plans(plans))
    asked = [request(name, prompt=PREFIX[:30], max_tokens=60) for name in "abc"]
    drive.submit(*asked)
    drive.step(6)
    before = total(drive, "num_catch_up_tokens")
    drive.step(3)
    assert set(drive.engine.scheduler.num_behind) == {"script"}
    assert drive.engine.scheduler.num_behind["script"] >= 3 * 30
    drive.finish()
    assert_right(drive, *asked)
    assert total(drive, "num_catch_up_tokens") - before >= 3 * 30
    # It drafts again, for it emits many tokens a step.
    assert drive.results[-2].stats.num_accepted_tokens > 0


def test_given_back_twice_is_given_back_once():
    plans = [DRAFTING] * 4 + [releasing(Release.CONTEXT)] * 2 + [releasing(Release.WEIGHTS)] * 2
    drive = Drive(limits(2, 512), script=all_right, planner=Plans([*plans, DRAFTING]))
    drive.submit(request("a"))
    drive.finish()
    assert_right(drive, request("a"))


def test_a_drafter_that_cannot_give_its_context_back_fails_no_step(monkeypatch):
    def fails(_):
        raise OSError("the system refuses")

    monkeypatch.setattr(ScriptDrafter, "release_context", fails)
    plans = [DRAFTING] * 4 + [releasing(Release.CONTEXT)] * 2 + [DRAFTING]
    drive = Drive(limits(2, 512), script=all_right, planner=Plans(plans))
    drive.submit(request("a"))
    drive.finish()
    assert_right(drive, request("a"))
    assert total(drive, "num_catch_up_tokens") > 0


def test_a_plan_cannot_draft_with_what_it_releases():
    with pytest.raises(ValueError, match="do one of both"):
        replace(DRAFTING, released={"script": Release.CONTEXT})


class Loader:
    """Loads a scripted drafter, as often as it may."""

    def __init__(self, answers: dict) -> None:
        self.model = HashLM(num_pages=64)
        self.answers = answers
        self.num_loads = 0
        self.is_broken = False

    def __call__(self) -> ScriptDrafter:
        if self.is_broken:
            raise CheckpointError("the file is gone")
        self.num_loads += 1
        right = right_of(self.answers)
        return ScriptDrafter(self.model.facts, right, all_right, model=self.model, facts=SCRIPTED)


def served(loader: Loader, planner, asked) -> tuple[int, ...]:
    loader.answers[asked.seed, asked.choice] = full_ids(asked, serial_answer(loader.model, asked))
    held = HeldDrafter(loader)
    engine = Engine(loader.model, limits(2, 512), drafters=[held], planner=planner)
    engine.submit(asked)
    emitted: list[int] = []
    while engine.has_work:
        for output in engine.step().outputs:
            emitted.extend(output.token_ids)
        engine.check()
    return tuple(emitted)


def test_weights_are_loaded_again_when_they_are_wanted_and_not_before():
    loader, asked = Loader({}), request("a", max_tokens=60)
    plans = [DRAFTING] * 4 + [releasing(Release.WEIGHTS)] * 4 + [DRAFTING]
    assert served(loader, Plans(plans), asked) == serial_answer(loader.model, asked).token_ids
    assert loader.num_loads == 2


def test_weights_that_cannot_be_loaded_cost_speed_and_are_tried_again(monkeypatch):
    monkeypatch.setattr(drafting, "_NUM_STEPS_TO_RETRY", 5)
    loader, asked = Loader({}), request("a", max_tokens=60)

    class Breaks(Absences):
        def plan(self, signals: PlanSignals) -> DraftPlan:
            loader.is_broken = 5 <= len(self.seen) < 12
            return super().plan(signals)

    planner = Breaks([DRAFTING] * 4 + [releasing(Release.WEIGHTS)] * 3 + [DRAFTING])
    assert served(loader, planner, asked) == serial_answer(loader.model, asked).token_ids
    assert frozenset({"script"}) in planner.seen
    assert planner.seen[-1] == frozenset()
    assert loader.num_loads == 2


def test_a_drafter_that_is_gone_says_so():
    held = HeldDrafter(Loader({}))
    held.release_weights()
    assert held.facts == SCRIPTED
    with pytest.raises(DrafterReleasedError, match="restore it first"):
        held.propose([])
    held.release_context()
    held.restore()
    assert held.propose([]) == []


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def test_memory_that_is_given_back_is_the_systems_again():
    arena = Arena()
    tensors = [arena.zeros((1 << 24,), torch.float32) for _ in range(2)]
    for tensor in tensors:
        tensor.fill_(1.0)
    before = _resident_bytes()
    arena.release()
    assert before - _resident_bytes() > 100 << 20
    assert all(tensor.count_nonzero() == 0 for tensor in tensors)
    tensors[0].fill_(2.0)
    assert tensors[0][-1] == 2.0


def test_an_engine_in_which_nothing_runs_gives_memory_back_too():
    drive = Drive(
        limits(2, 512),
        script=all_right,
        planner=Plans([DRAFTING] * 45 + [releasing(Release.CONTEXT)]),
    )
    asked = request("a", max_tokens=8)
    drive.submit(asked)
    drive.finish()
    count = len(drive.results)
    assert (drive.drafter._positions >= 0).any()
    for _ in range(45 - count):
        drive.engine.look_around()
        assert (drive.drafter._positions >= 0).any()
    drive.engine.look_around()
    assert (drive.drafter._positions < 0).all()
    drive.engine.check()

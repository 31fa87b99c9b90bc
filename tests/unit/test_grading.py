"""Draft tokens graded by what the target chose, verified or not."""

import pytest

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.script_drafter import all_right, random_wrong, right_up_to
from dflash.batch import Run
from dflash.grading import grade
from dflash.request import GenerateRequest
from dflash.sampling import Chosen
from dflash.schedule import Turn, Verdict
from dflash.sequence import Sequence
from dflash.stats import WhyPlain
from tests.rigs.drafted import COLD, VOCAB, WARM, Plans, always, drafting, places, request, total

PLACES = 4


def sequence() -> Sequence:
    return Sequence(GenerateRequest("r", (1, 2, 3), 50), eos_token_ids=(0,))


def verified(of: Sequence, drafts: tuple[int, ...], tail: tuple[int, ...], *chosen: int) -> Verdict:
    run = Run((9, *drafts), 3, (0,), 1 + len(drafts))
    why = None if drafts else WhyPlain.PLAN
    turn = Turn(of, run, len(drafts), why, drafter="a", tail=tail)
    return Verdict(turn, tuple(Chosen(id_, None) for id_ in chosen), len(chosen))


def graded(*verdicts: Verdict) -> tuple[list[int], list[int], list[int], list[int]]:
    grades = grade(verdicts, {"a": PLACES})["a"]
    return (
        list(grades.verified_graded),
        list(grades.verified_accepted),
        list(grades.free_graded),
        list(grades.free_accepted),
    )


def both(drive: Drive, what: str) -> list[int]:
    verified, free = places(drive, f"verified_{what}"), places(drive, f"free_{what}")
    return [a + b for a, b in zip(verified, free, strict=True)]


NOTHING = [0, 0, 0, 0]


def test_what_follows_a_wrong_draft_token_is_not_graded():
    seen = graded(verified(sequence(), (10, 11, 12), (13,), 10, 99))
    assert seen == ([1, 1, 0, 0], [1, 0, 0, 0], NOTHING, NOTHING)


def test_the_extra_token_grades_the_first_token_of_the_tail():
    of = sequence()
    seen = graded(verified(of, (10, 11), (12, 13), 10, 11, 12))
    assert seen == ([1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0])
    assert graded(verified(of, (), (), 13)) == (NOTHING, NOTHING, [0, 0, 0, 1], [0, 0, 0, 1])
    assert of.followed_by["a"].tails == []


def test_a_tail_closes_at_the_first_token_that_was_not_drafted():
    of = sequence()
    graded(verified(of, (10,), (11, 12, 13), 10, 11))
    assert graded(verified(of, (), (), 99))[2:] == ([0, 0, 1, 0], NOTHING)
    assert graded(verified(of, (), (), 13))[2:] == (NOTHING, NOTHING)


def test_a_tail_that_follows_a_rejected_draft_token_is_never_graded():
    of = sequence()
    graded(verified(of, (10,), (11, 12, 13), 99))
    assert of.followed_by["a"].tails == []


def test_tails_of_several_blocks_are_followed_side_by_side():
    of = sequence()
    graded(verified(of, (10,), (11, 12, 13), 10, 11))
    graded(verified(of, (12,), (13, 14, 77), 12, 13))
    assert graded(verified(of, (), (), 14))[2:] == ([0, 0, 1, 0], [0, 0, 1, 0])
    assert [(tail.token_ids, tail.place) for tail in of.followed_by["a"].tails] == [((77,), 3)]


def test_the_first_two_blocks_after_a_catch_up_are_not_graded():
    of = sequence()
    of.followed_by["a"].num_ungraded = 2
    for count in (0, 0, 1):
        assert graded(verified(of, (10,), (), 10, 11))[0] == [count, 0, 0, 0]


def test_a_request_never_has_more_open_tails_than_a_draft_has_places():
    drive = Drive(script=all_right, planner=always(1, num_graded=8))
    drive.submit(request("r", max_tokens=60))
    while drive.engine.has_work:
        drive.step()
        live = list(drive.engine.scheduler._running)
        assert all(len(sequence.followed_by["script"].tails) < 7 for sequence in live)
    assert total(drive, "num_accepted_tokens") == 29


@pytest.mark.parametrize("width", [1, 2, 3, 6])
def test_free_grading_finds_at_any_width_what_verifying_the_whole_draft_finds(width: int):
    drive = Drive(script=right_up_to(4, VOCAB), planner=always(width, num_graded=8))
    drive.submit(request("a"), request("b", max_tokens=70))
    drive.finish()
    graded_at, accepted_at = both(drive, "graded"), both(drive, "accepted")
    assert graded_at[:4] == accepted_at[:4]
    assert min(graded_at[:5]) > 0
    assert accepted_at[4:] == [0, 0, 0]
    assert graded_at[5:] == [0, 0]
    assert places(drive, "verified_graded")[width:] == [0] * (7 - width)


def test_only_so_many_rows_are_drafted_to_the_end_and_each_in_its_turn():
    drive = Drive(script=all_right, planner=always(2, num_graded=1))
    drive.submit(*(request(f"r{index}") for index in range(3)))
    drive.step()
    whole = []
    for _ in range(6):
        drive.step()
        asked = {row.seed: row.num_drafts for row in drive.drafter.asked}
        assert sorted(asked.values()) == [2, 2, 7]
        whole.append(max(asked, key=asked.__getitem__))
    assert whole[:3] == whole[3:]
    assert len(set(whole)) == 3


def test_verified_acceptances_are_the_accepted_tokens():
    drive = Drive(script=random_wrong(0.3, VOCAB, seed=4), planner=always(7))
    drive.submit(*(request(f"r{index}") for index in range(4)))
    drive.finish()
    accepted = places(drive, "verified_accepted")
    assert sum(accepted) == total(drive, "num_accepted_tokens") > 0
    assert accepted == sorted(accepted, reverse=True)


def test_tails_are_graded_while_nothing_is_drafted_any_more():
    drive = Drive(script=all_right, planner=Plans([WARM, drafting(1, 1), COLD]))
    drive.submit(request("r"))
    drive.step(2)
    assert places(drive, "free_graded") == [0, 1, 0, 0, 0, 0, 0]
    drive.step(9)
    assert places(drive, "free_graded") == places(drive, "free_accepted") == [0, 1, 1, 1, 1, 1, 1]

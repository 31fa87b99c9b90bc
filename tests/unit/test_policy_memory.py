"""The memory governor by itself: readings in, releases out."""

import pytest

from policy.governor import Governor, MemoryLevel, Pressure, Release
from policy.limits import MemoryLimits
from policy.readings import MemoryReading, MemoryTrouble

LIMITS = MemoryLimits()
GIB = 1 << 30


def reading(free: float) -> MemoryReading:
    return MemoryReading(140 * GIB, int(free * 140 * GIB), None)


def after(pressures, governor=None, every_s=1.0) -> Governor:
    governor = governor or Governor()
    start_s = governor.since_s
    for index, pressure in enumerate(pressures, start=1):
        governor = governor.after(pressure, LIMITS, start_s + index * every_s)
    return governor


@pytest.mark.parametrize(
    ("pressure", "level"),
    [
        (Pressure(0.89), MemoryLevel.GREEN),
        (Pressure(0.90), MemoryLevel.AMBER),
        (Pressure(1.0), MemoryLevel.AMBER),
        (Pressure(0.5, num_preempted=1), MemoryLevel.AMBER),
        (Pressure(0.5, num_preempted=2), MemoryLevel.RED),
        (Pressure(0.5, reading=reading(0.03)), MemoryLevel.GREEN),
        (Pressure(0.5, reading=reading(0.01)), MemoryLevel.AMBER),
        (Pressure(0.5, reading=reading(0.001)), MemoryLevel.RED),
    ],
)
def test_levels_are_entered_at_their_thresholds(pressure, level):
    assert after([pressure]).level is level


def test_levels_are_left_further_down_than_they_are_entered():
    amber = after([Pressure(0.91)])
    assert after([Pressure(0.85)], amber).level is MemoryLevel.AMBER
    assert after([Pressure(0.79)], amber).level is MemoryLevel.GREEN
    red = after([Pressure(reading=reading(0.001))])
    assert after([Pressure(reading=reading(0.008))], red).level is MemoryLevel.RED
    assert after([Pressure(reading=reading(0.015))], red).level is MemoryLevel.AMBER
    scarce = after([Pressure(reading=reading(0.015))])
    assert after([Pressure(reading=reading(0.03))], scarce).level is MemoryLevel.AMBER
    assert after([Pressure(reading=reading(0.05))], scarce).level is MemoryLevel.GREEN


def test_two_preemptions_some_seconds_apart_are_red_and_forgotten_in_ten():
    once = Pressure(num_preempted=1)
    governor = after([once, Pressure(), Pressure(), once])
    assert governor.level is MemoryLevel.RED
    assert after([Pressure()] * 30, governor).level is MemoryLevel.GREEN


def test_a_pool_that_is_only_full_narrows_drafts_and_takes_no_more():
    assert after([Pressure(0.95)] * 500).release is Release.NARROWER_DRAFTS


def test_a_co_tenant_that_stays_costs_the_heavy_drafter_and_gives_it_back():
    pressed = after([Pressure(reading=reading(0.01))] * 100)
    assert pressed.release is Release.HEAVY_DRAFTER
    assert after([Pressure(reading=reading(0.5))] * 30, pressed).release is Release.NOTHING


def test_red_releases_pages_then_weights_and_amber_gives_back_drafting_only():
    red = Pressure(reading=reading(0.001))
    assert after([red]).release is Release.DRAFTING
    assert after([red] * 32).release is Release.CONTEXT_PAGES
    most = after([red] * 64)
    assert most.release is Release.WEIGHTS
    calm = [Pressure(reading=reading(0.5))]
    # A minute of calm brings the weights back, and the rest follows, five seconds at a time.
    assert after(calm * 59, most).release is Release.WEIGHTS
    assert after(calm * 62, most).release is Release.CONTEXT_PAGES
    assert after(calm * 67, most).release is Release.DRAFTING
    assert after(calm * 79, most).release is Release.NARROWER_DRAFTS
    assert after(calm * 82, most).release is Release.NOTHING


def test_calm_that_ends_while_things_come_back_has_to_last_a_minute_again():
    red, calm = [Pressure(reading=reading(0.001))], [Pressure(reading=reading(0.5))]
    half = after(calm * 62, after(red * 64))
    assert half.release is Release.CONTEXT_PAGES
    # A co-tenant comes and goes: what has not come back yet begins to wait anew.
    disturbed = after(red * 2, half)
    assert after(calm * 55, disturbed).release is Release.CONTEXT_PAGES
    assert after(calm * 65, disturbed).release is Release.DRAFTING


WEIGHTS_BYTES, CONTEXT_BYTES = 4 * GIB, 8 * GIB


def live_through(co_tenant, seconds) -> list[tuple[int, Release]]:
    """Return what is released and when, on a device where a release frees what it says.

    Target, drafter and pages leave 9 GiB; ``co_tenant`` gives what somebody else takes by second.
    """
    governor, changes = Governor(), [(0, Release.NOTHING)]
    for now_s in range(seconds):
        release = governor.release
        freed = CONTEXT_BYTES * (release >= Release.CONTEXT_PAGES)
        freed += WEIGHTS_BYTES * (release >= Release.WEIGHTS)
        free = max(0, 9 * GIB + freed - co_tenant(now_s))
        needed = {Release.CONTEXT_PAGES: CONTEXT_BYTES, Release.WEIGHTS: WEIGHTS_BYTES}
        pressure = Pressure(
            reading=MemoryReading(140 * GIB, free, None), restore_bytes=needed.get(release, 0)
        )
        governor = governor.after(pressure, LIMITS, float(now_s))
        if governor.release is not release:
            changes.append((now_s, governor.release))
    return changes


def test_what_was_released_is_not_taken_back_where_it_would_be_short_again():
    def co_tenant(now_s: int) -> int:
        return int(8.5 * GIB) if 30 <= now_s < 900 else 0

    changes = live_through(co_tenant, 1200)
    assert changes[:3] == [
        (0, Release.NOTHING),
        (30, Release.DRAFTING),
        (60, Release.CONTEXT_PAGES),
    ]
    # Its release made memory green at once; nothing more until the co-tenant has left, and calm.
    assert changes[3] == (900 + 59, Release.DRAFTING)
    assert changes[-1][1] is Release.NOTHING


def test_a_co_tenant_that_takes_all_is_given_the_weights_and_outlived():
    def co_tenant(now_s: int) -> int:
        return 200 * GIB if 30 <= now_s < 300 else 0

    changes = live_through(co_tenant, 600)
    assert (90, Release.WEIGHTS) in changes
    assert [release for _, release in changes[-5:]] == [4, 3, 2, 1, 0]


def test_a_release_that_nobody_can_say_the_room_for_is_tried_again_after_the_calm():
    red = after([Pressure(num_preempted=2)] * 32)
    assert red.release is Release.CONTEXT_PAGES
    unknown = Pressure(reading=MemoryReading(), restore_bytes=CONTEXT_BYTES)
    assert after([unknown] * 100, red).release is Release.NOTHING


def blind(trouble: MemoryTrouble) -> Pressure:
    return Pressure(reading=MemoryReading(trouble=trouble))


@pytest.mark.parametrize("trouble", [MemoryTrouble.ABSENT, MemoryTrouble.REFUSED])
def test_where_there_is_no_device_to_guard_the_pool_alone_decides(trouble):
    governor = after([blind(trouble)] * 100)
    assert governor.level is MemoryLevel.GREEN


@pytest.mark.parametrize(
    "trouble",
    [MemoryTrouble.FAILED, MemoryTrouble.IMPLAUSIBLE, MemoryTrouble.UNSUPPORTED],
)
def test_a_reading_that_fails_holds_the_last_answer_and_then_goes_to_the_safe_side(trouble):
    answered = after([Pressure(reading=reading(0.5))])
    assert after([blind(trouble)] * 9, answered).level is MemoryLevel.GREEN
    assert after([blind(trouble)] * 12, answered).level is MemoryLevel.AMBER
    red = after([Pressure(reading=reading(0.001))])
    assert after([blind(trouble)] * 100, red).level is MemoryLevel.RED


def test_a_lost_device_is_amber_at_once_and_trusted_again_when_it_answers():
    answered = after([Pressure(reading=reading(0.5))])
    lost = after([blind(MemoryTrouble.LOST)], answered)
    assert lost.level is MemoryLevel.AMBER
    assert after([Pressure(reading=reading(0.5))], lost).level is MemoryLevel.GREEN

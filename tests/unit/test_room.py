"""What several replicas and one queue hold together."""

import pytest

from deployments.room import Room, most_live, room_of_this_replica


@pytest.mark.parametrize(
    ("rooms", "most"),
    [
        ([], None),
        ([None], None),
        ([Room(4, 8)], 12),
        ([Room(4, 8), Room(4, 8), None], 16),
        ([Room(4, 0)], 4),
        ([Room(4, -1)], None),
    ],
)
def test_every_replicas_slots_count_and_the_queue_once(rooms, most):
    assert most_live(rooms) == most


def test_outside_serve_nothing_is_known():
    assert room_of_this_replica() is None
